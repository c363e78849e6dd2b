package redislock

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

type described struct {
	Name       *string
	Kind       string
	LeaseMs    *float64 `json:"lease_ms"`
	WaitMs     *float64 `json:"wait_ms"`
	Permits    *int
	MaxWaiters *int `json:"max_waiters"`
	Label      *string
	Session    bool
	Renew      bool
}

func (d described) options() (options, error) {
	list := []Option{}
	if d.LeaseMs != nil {
		list = append(list, Lease(time.Duration(*d.LeaseMs*1e6)))
	}
	for _, one := range []struct {
		isSet bool
		opt   Option
	}{
		{d.Kind == "shared" && d.Permits == nil, Shared()}, {d.Kind == "reentrant", Reentrant("o")}, {d.Session, Session()}, {d.Renew, Renew()},
	} {
		if one.isSet {
			list = append(list, one.opt)
		}
	}
	if d.Permits != nil {
		list = append(list, Permits(*d.Permits))
	}
	if d.MaxWaiters != nil {
		list = append(list, MaxWaiters(*d.MaxWaiters))
	}
	if d.Label != nil {
		list = append(list, Label(*d.Label))
	}
	name := "door"
	if d.Name != nil {
		name = *d.Name
	}
	return readOptions(name, list)
}

type vectors struct {
	Commands []struct {
		Send    string
		Lock    described
		WaitMs  float64 `json:"wait_ms"`
		LeaseMs float64 `json:"lease_ms"`
		Channel string
		Words   []string
	}
	Channels []struct {
		Name    string
		Cluster bool
		Channel *string
	}
	Counters []struct {
		Name    string
		Cluster bool
		Counter *string
	}
	Arguments []struct {
		Lock  described
		Valid bool
	}
	Errors   []struct{ Text, Class string }
	Messages []struct{ Text, Event, Token, Key string }
	Values   []struct {
		Bytes               string
		Value               json.RawMessage
		Push                json.RawMessage
		Error               *string
		Incomplete, Invalid bool
	}
	Numbers map[string]float64
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("../vectors/words.json")
	if err != nil {
		t.Fatal(err)
	}
	var all vectors
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCommandsAreThoseOfTheFamily(t *testing.T) {
	for _, one := range readVectors(t).Commands {
		o, err := one.Lock.options()
		if err != nil {
			t.Error(one, err)
		}
		c := &claim{options: o, name: "door", token: "t:1"}
		var words []string
		switch one.Send {
		case "acquire":
			words = requestWords("door", "t:1", &o)
		case "wait":
			wait := time.Duration(one.WaitMs) * time.Millisecond
			words = waitWords(requestWords("door", "t:1", &o), wait, one.Channel, &o)
		case "release":
			words = c.releaseWords()
		case "extend":
			words = c.extendWords(time.Duration(one.LeaseMs) * time.Millisecond)
		case "fence":
			if words, err = c.fenceWords(false); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(words, one.Words) {
			t.Errorf("%v: %v", one.Words, words)
		}
	}
}

func TestNamesAreThoseOfTheFamily(t *testing.T) {
	all := readVectors(t)
	for _, one := range all.Channels {
		want := ""
		if one.Channel != nil {
			want = *one.Channel
		}
		if got := channelOf("ID", one.Name, one.Cluster); got != want {
			t.Errorf("%+v: %q", one, got)
		}
	}
	for _, one := range all.Counters {
		got, err := counterOf(one.Name, one.Cluster)
		switch {
		case one.Counter == nil && !errors.Is(err, ErrArgument):
			t.Errorf("%+v: %q", one, got)
		case one.Counter != nil && got != *one.Counter:
			t.Errorf("%+v: %q", one, got)
		}
	}
}

func TestArgumentsAreCheckedAsInTheFamily(t *testing.T) {
	for _, one := range readVectors(t).Arguments {
		if one.Lock.WaitMs != nil {
			continue // A context is the patience.
		}
		if _, err := one.Lock.options(); one.Valid != (err == nil) || err != nil && !errors.Is(err, ErrArgument) {
			t.Errorf("%+v: %v", one, err)
		}
	}
}

func TestErrorsAreClassifiedAsInTheFamily(t *testing.T) {
	for _, one := range readVectors(t).Errors {
		err := error(serverError(one.Text))
		class := "server"
		switch {
		case isNotHeld(err):
			class = "lost"
		case codeOf(err) == "UNKNOWN":
			class = "no module"
		case codeOf(err) == "NOSUBSCRIBER":
			class = "no channel"
		case isPassing(err):
			class = "passing"
		case errors.Is(public("door", "acquire", err), ErrQueueFull):
			class = "full"
		}
		if class != one.Class {
			t.Errorf("%+v: %s", one, class)
		}
	}
}

func TestMessagesReachWhatWaitsForThem(t *testing.T) {
	for _, one := range readVectors(t).Messages {
		b := &backend{topics: map[string]map[chan string]struct{}{}}
		events, stop := b.listen(one.Token)
		b.message(one.Text)
		if event := <-events; event != one.Event {
			t.Errorf("%+v: %s", one, event)
		}
		stop()
		if len(b.topics) != 0 {
			t.Error("it still listens")
		}
	}
}

// plain returns a value as JSON has it.
func plain(v value) any {
	switch v.kind {
	case '_':
		return nil
	case ':':
		return float64(v.num)
	case '#':
		return v.text == "t"
	case ',', '(':
		number, _ := strconv.ParseFloat(v.text, 64)
		return number
	case '*', '~', '>':
		list := []any{}
		for _, item := range v.list {
			list = append(list, plain(item))
		}
		return list
	case '%':
		fields := map[string]any{}
		for n := 0; n < len(v.list); n += 2 {
			fields[v.list[n].text] = plain(v.list[n+1])
		}
		return fields
	}
	return v.text
}

func TestValuesAreReadAsInTheFamily(t *testing.T) {
	for _, one := range readVectors(t).Values {
		got, err := readValue(bufio.NewReader(strings.NewReader(one.Bytes)))
		isIncomplete := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		want, isRight := one.Value, false
		switch {
		case one.Invalid:
			isRight = errors.Is(err, errMalformed)
		case one.Incomplete:
			isRight = isIncomplete
		case one.Error != nil:
			isRight = got.kind == '-' && got.text == *one.Error
		default:
			if one.Push != nil {
				want = one.Push
			}
			text, _ := json.Marshal(plain(got))
			var a, b any
			_, _ = json.Unmarshal(text, &a), json.Unmarshal(want, &b)
			textA, _ := json.Marshal(a)
			textB, _ := json.Marshal(b)
			isRight = err == nil && string(textA) == string(textB) && (one.Push != nil) == (got.kind == '>')
		}
		if !isRight {
			t.Errorf("%q: %+v, %v", one.Bytes, got, err)
		}
	}
}

func TestNumbersAreThoseOfTheFamily(t *testing.T) {
	ms := func(d time.Duration) float64 { return float64(d / time.Millisecond) }
	ours := map[string]float64{
		"default_lease_ms": ms(defaultLease), "min_lease_ms": ms(minLease), "max_lease_ms": ms(maxLease),
		"min_session_lease_ms": ms(minSessionLease), "max_grace_ms": ms(maxGrace), "max_block_ms": ms(maxBlock),
		"silence_ms": ms(silence), "outage_ms": ms(maxOutage), "scripts_ms": ms(useScripts), "max_poll_ms": ms(lastPause),
		"release_again_ms": ms(retryRelease), "max_permits": maxCount, "shares_under_way": maxTogether,
		"late_part": latePart, "renewals": renewals,
	}
	if numbers := readVectors(t).Numbers; !maps.Equal(numbers, ours) {
		t.Errorf("%v, and here %v", numbers, ours)
	}
}

func TestTranscriptsAreKept(t *testing.T) {
	program := filepath.Join(t.TempDir(), "driver")
	if out, err := exec.Command("go", "build", "-o", program, "./internal/driver").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("python3", "../vectors/player.py", "--", program).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(">2\r\n$10\r\ninvalidate\r\n*1\r\n$4\r\ndoor\r\n")
	f.Add("%1\r\n+a\r\n:1\r\n#t\r\n=8\r\ntxt:door\r\n")
	f.Add("*1048576\r\n*1048576\r\n$67108864\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := bufio.NewReader(strings.NewReader(text))
		for {
			v, err := readValue(in)
			if err != nil {
				return
			}
			plain(v)
			if v.kind == '*' && len(v.list) > len(text) {
				t.Errorf("%d items of %d bytes", len(v.list), len(text))
			}
		}
	})
}
