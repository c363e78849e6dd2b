package redislock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	// maxText is the longest text that is read. Names and tokens are far shorter.
	maxText = 64 << 20
	// maxItems is the longest list that is read.
	maxItems = 1 << 20
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

// readValue reads one reply or message.
func readValue(in *bufio.Reader) (value, error) { return readNested(in, maxDepth) }

func readNested(in *bufio.Reader, depth int) (value, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return value{}, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth == 0 {
		return value{}, fmt.Errorf("%w: %.40q", errMalformed, line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ',', '(':
		return value{kind: kind, text: string(rest)}, nil
	case '_':
		return value{kind: '_'}, nil
	}
	if kind == '#' && string(rest) == "t" {
		return value{kind: '#', num: 1}, nil
	} else if kind == '#' && string(rest) == "f" {
		return value{kind: '#'}, nil
	}
	num, err := strconv.ParseInt(string(rest), 10, 64)
	switch {
	case err != nil:
		return value{}, fmt.Errorf("%w: %.40q", errMalformed, line)
	case kind == ':':
		return value{kind: ':', num: num}, nil
	case num == -1 && (kind == '$' || kind == '*'):
		return value{kind: '_'}, nil
	}
	switch kind {
	case '$', '!', '=':
		return readText(in, kind, num)
	case '*', '>', '~':
		return readList(in, kind, num, depth-1)
	case '%':
		return readList(in, kind, 2*min(num, maxItems), depth-1)
	case '|':
		// Attributes precede a value, and say nothing here.
		if _, err := readList(in, kind, 2*min(num, maxItems), depth-1); err != nil {
			return value{}, err
		}
		return readNested(in, depth-1)
	}
	return value{}, fmt.Errorf("%w: type %q", errMalformed, kind)
}

func readText(in *bufio.Reader, kind byte, length int64) (value, error) {
	if length < 0 || length > maxText {
		return value{}, fmt.Errorf("%w: a text of %d bytes", errMalformed, length)
	}
	text := make([]byte, length+2)
	if _, err := io.ReadFull(in, text); err != nil {
		return value{}, err
	}
	if string(text[length:]) != "\r\n" {
		return value{}, fmt.Errorf("%w: no end of a text", errMalformed)
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

func readList(in *bufio.Reader, kind byte, length int64, depth int) (value, error) {
	if length < 0 || length > maxItems {
		return value{}, fmt.Errorf("%w: a list of %d items", errMalformed, length)
	}
	// Room for what a list claims to have is not made before it comes.
	list := make([]value, 0, min(length, 64))
	for range length {
		item, err := readNested(in, depth)
		if err != nil {
			return value{}, err
		}
		list = append(list, item)
	}
	return value{kind: kind, list: list}, nil
}
