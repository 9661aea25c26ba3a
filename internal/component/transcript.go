package component

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// transcript reads what a kubelet logs, line by line and in either of klog's formats, and keeps the little that
// matters: the configuration it dumps, what it says of strict decoding, and its last word. Memory is bounded by
// maxEntry, whatever the process writes.
type transcript struct {
	dump    []byte // the effective configuration, JSON
	lenient string // why strict decoding failed, if it did
	failure string // the error that ended the process, in the component's words
	panic   string
	strayed string // the first line that should never have come

	strays  []string // what such lines contain; nil: none
	onStray func(line string)

	last    string // the last line, without header
	partial []byte
	tooLong bool
	entry   *entry // a multi-line value that is still open
}

// entry is a log entry with one multi-line value: `"message" key=<`, lines that begin with a tab, ` >`.
type entry struct {
	message, key string
	value        bytes.Buffer
}

// maxEntry is the longest line or value that is kept: a 1 MiB payload is a few MiB when it is dumped.
const maxEntry = 16 << 20

var klogHeader = regexp.MustCompile(`^[IWEF][0-9]{4} [0-9:.]{15} +[0-9]+ [^ \]]+:[0-9]+\] `)

// Write implements io.Writer; it never fails.
func (t *transcript) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}
		if len(t.partial)+len(piece) <= maxEntry {
			t.partial = append(t.partial, piece...)
		} else {
			t.tooLong = true
		}
		if i < 0 {
			break
		}
		t.flush()
		p = p[i+1:]
	}
	return n, nil
}

// flush takes what has been written as a line, though no newline ended it.
func (t *transcript) flush() {
	if len(t.partial) == 0 && !t.tooLong {
		return
	}
	line := string(t.partial)
	t.partial, t.tooLong = t.partial[:0], false
	if cap(t.partial) > 64<<10 {
		t.partial = nil
	}
	t.line(strings.TrimSuffix(line, "\r"))
}

func (t *transcript) line(line string) {
	if t.entry != nil {
		if value, ok := strings.CutPrefix(line, "\t"); ok {
			if t.entry.value.Len()+len(value) < maxEntry {
				t.entry.value.WriteString(value + "\n")
			}
			return
		}
		closed := t.entry
		t.entry = nil
		t.keep(closed.message, closed.key, strings.TrimSuffix(closed.value.String(), "\n"))
		if strings.HasPrefix(line, " >") {
			return
		}
	}
	if strings.TrimSpace(line) == "" {
		return
	}
	if strings.HasPrefix(line, "{") && t.jsonLine(line) {
		return
	}
	header := klogHeader.FindString(line)
	rest := line[len(header):]
	t.last = rest
	switch {
	case header != "":
		t.structured(rest)
	case strings.HasPrefix(line, "Error: "):
		t.failure = strings.TrimPrefix(line, "Error: ")
	case t.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.panic = line
	}
	t.watch(rest)
}

// structured reads `"message" key="value"` as far as the first value, which is the one that matters here.
func (t *transcript) structured(rest string) {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return // not structured: `FLAG: --x="y"`
	}
	message, _ := strconv.Unquote(quoted)
	key, value, ok := strings.Cut(strings.TrimPrefix(rest[len(quoted):], " "), "=")
	switch {
	case !ok:
		t.keep(message, "", "")
	case value == "<":
		t.entry = &entry{message: message, key: key}
	default:
		if q, err := strconv.QuotedPrefix(value); err == nil {
			value, _ = strconv.Unquote(q)
		}
		t.keep(message, key, value)
	}
}

// jsonLine reads an entry of --logging-format=json.
func (t *transcript) jsonLine(line string) bool {
	var e struct {
		Msg           string          `json:"msg"`
		Err           string          `json:"err"`
		Configuration json.RawMessage `json:"configuration"`
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return false
	}
	t.last = e.Msg
	if len(e.Configuration) > 0 {
		t.keep(e.Msg, "configuration", string(e.Configuration))
	} else {
		t.keep(e.Msg, "err", e.Err)
	}
	t.watch(e.Msg)
	return true
}

func (t *transcript) keep(message, key, value string) {
	switch {
	case message == "KubeletConfiguration" && key == "configuration":
		t.dump = []byte(value)
	case strings.HasPrefix(message, "Using lenient decoding as strict decoding failed"):
		t.lenient = value
	case message == "command failed" && key == "err":
		t.failure = value
	}
}

func (t *transcript) watch(line string) {
	if t.strayed != "" {
		return
	}
	for _, stray := range t.strays {
		if strings.Contains(line, stray) {
			t.strayed = clip(line, 200)
			t.onStray(t.strayed)
			return
		}
	}
}

// lastWord is what the process had to say when it ended.
func (t *transcript) lastWord() string {
	switch {
	case t.failure != "":
		return t.failure
	case t.panic != "":
		return t.panic
	default:
		return t.last
	}
}

func (t *transcript) lastLine() string { return t.last }

// clip bounds words to n bytes and keeps them valid UTF-8.
func clip(words string, n int) string {
	if len(words) <= n {
		return strings.ToValidUTF8(words, "?")
	}
	return strings.ToValidUTF8(words[:n], "") + "..."
}
