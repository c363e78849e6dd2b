package redislock

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

const (
	// maxSize is the longest text or list that is read. Names and tokens are far shorter.
	maxSize = 64 << 20
	// maxDepth is how deep lists may be nested.
	maxDepth = 8
)

var errMalformed = errors.New("malformed reply")

// value is a reply or a message in RESP3. Its kind is the first byte on the wire; '_' stands for every null, '$' for every text, and a
// map is a list of keys and values in turn.
type value struct {
	kind byte
	num  int64
	text string
	list []value
}

func (v value) isNull() bool { return v.kind == '_' }

// field returns a field of a map.
func (v value) field(name string) value {
	for n := 0; n+1 < len(v.list); n += 2 {
		if v.list[n].text == name {
			return v.list[n+1]
		}
	}
	return value{kind: '_'}
}

// reply is a reply, or the error that there is none.
type reply struct {
	value value
	err   error
}

// failure returns an error also for an error reply.
func (r reply) failure() error {
	if r.err == nil && r.value.kind == '-' {
		return serverError(r.value.text)
	}
	return r.err
}

// appendCommand appends a command as a client sends it.
func appendCommand(out []byte, words []string) []byte {
	out = append(out, '*')
	out = strconv.AppendInt(out, int64(len(words)), 10)
	for _, word := range words {
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(word)), 10)
		out = append(out, "\r\n"...)
		out = append(out, word...)
	}
	return append(out, "\r\n"...)
}

// call sends a command on a connection that nothing else uses yet, and reads its reply.
func call(link net.Conn, in *bufio.Reader, words ...string) (value, error) {
	if _, err := link.Write(appendCommand(nil, words)); err != nil {
		return value{}, err
	}
	answer, err := readValue(in)
	return answer, reply{answer, err}.failure()
}

// readValue reads one reply or message.
func readValue(in *bufio.Reader) (value, error) { return readNested(in, maxDepth) }

func readNested(in *bufio.Reader, depth int) (value, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return value{}, err
	}
	malformed := func() error { return fmt.Errorf("%w: %.40q", errMalformed, line) }
	if len(line) < 3 || line[len(line)-2] != '\r' || depth == 0 {
		return value{}, malformed()
	}
	v, rest := value{kind: line[0]}, line[1:len(line)-2]
	switch v.kind {
	case '_':
		return v, nil
	case '+', '-', ',', '(', '#':
		v.text = string(rest)
		return v, nil
	}
	num, err := strconv.ParseInt(string(rest), 10, 64)
	switch {
	case err == nil && v.kind == ':':
		v.num = num
		return v, nil
	case num == -1 && (v.kind == '$' || v.kind == '*'):
		return value{kind: '_'}, nil
	case err != nil || num < 0 || num > maxSize:
		return value{}, malformed()
	}
	switch v.kind {
	case '$', '!', '=':
		return readText(in, v.kind, num)
	case '%':
		num *= 2
	case '*', '>', '~':
	default:
		return value{}, malformed()
	}
	// No memory is taken for what a list claims to have before it comes.
	v.list = make([]value, 0, min(num, 64))
	for range num {
		item, err := readNested(in, depth-1)
		if err != nil {
			return value{}, err
		}
		v.list = append(v.list, item)
	}
	return v, nil
}

func readText(in *bufio.Reader, kind byte, length int64) (value, error) {
	text := make([]byte, length+2)
	if _, err := io.ReadFull(in, text); err != nil || string(text[length:]) != "\r\n" {
		return value{}, cmp.Or(err, errMalformed)
	}
	text = text[:length]
	switch {
	case kind == '!':
		return value{kind: '-', text: string(text)}, nil
	case kind == '=' && length >= 4:
		text = text[4:]
	}
	return value{kind: '$', text: string(text)}, nil
}
