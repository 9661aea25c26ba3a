package blockdev

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// serve serves a disk until the test ends, and returns its socket.
func serve(t *testing.T, r *Recorder) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nbd")
	l := assert.Value(net.Listen("unix", socket))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.OK(t, <-done)
	})
	return socket
}

func qemuIO(t *testing.T, socket string, commands ...string) string {
	t.Helper()
	program, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip("qemu-io is not installed (Debian: qemu-utils)")
	}
	args := []string{"-f", "raw", "-t", "writeback"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.CommandContext(t.Context(), program, append(args, "nbd:unix:"+socket)...).CombinedOutput()
	assert.Must(t, err == nil, "qemu-io: %v: %s", err, out)
	return string(out)
}

func TestQEMUReadsWritesFlushesAndDiscards(t *testing.T) {
	r := newRecorder(t)
	socket := serve(t, r)
	out := qemuIO(t, socket, "read -P 0x2e 0 32k", "write -P 0x61 0 1k", "flush", "write -f -P 0x62 1k 512", "write -z 1536 512", "discard 2k 512", "read -P 0x61 0 1k", "length")
	assert.That(t, !strings.Contains(out, "fail") && strings.Contains(out, "32 KiB"), "qemu-io: %s", out)
	assert.Equal(t, letters(t, r), padded("aab00"), "the disk")
	// A flush comes with each close; the durable write comes after the first.
	var kinds string
	err := r.each(r.Position(), func(_ Position, rec record, _ io.Reader) error {
		kinds += map[kind]string{written: "w", zeroed: "z", flushed: "f"}[rec.Kind]
		if rec.Durable {
			kinds += "!"
		}
		return nil
	})
	assert.That(t, err == nil && strings.HasPrefix(kinds, "wfw!zz"), "the log has %s, %v", kinds, err)
}

// dial connects, and chooses the disk with the option that old clients use.
func dial(t *testing.T, socket string) net.Conn {
	t.Helper()
	conn := connect(t, socket)
	greet := binary.BigEndian.AppendUint32(nil, fixedNewstyle|noZeroes)
	greet = binary.BigEndian.AppendUint64(greet, magicOption)
	greet = binary.BigEndian.AppendUint32(greet, optExportName)
	greet = append(binary.BigEndian.AppendUint32(greet, 3), "any"...)
	assert.NoError(t, assert.Err(conn.Write(greet)))
	answer := make([]byte, 18+10)
	assert.NoError(t, assert.Err(io.ReadFull(conn, answer)))
	got := binary.BigEndian.Uint64(answer[18:])
	assert.Must(t, got == size, "the disk has %d bytes", got)
	return conn
}

func connect(t *testing.T, socket string) net.Conn {
	t.Helper()
	conn := assert.Value(net.Dial("unix", socket))(t)
	t.Cleanup(func() { _ = conn.Close() })
	assert.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return conn
}

func request(command uint16, offset uint64, length uint32) []byte {
	raw := binary.BigEndian.AppendUint32(nil, magicRequest)
	raw = binary.BigEndian.AppendUint16(raw, 0)
	raw = binary.BigEndian.AppendUint16(raw, command)
	raw = append(raw, "a handle"...)
	raw = binary.BigEndian.AppendUint64(raw, offset)
	return binary.BigEndian.AppendUint32(raw, length)
}

func TestBadRequestsGetAnErrorAndTheConnectionGoesOn(t *testing.T) {
	r := newRecorder(t)
	conn := dial(t, serve(t, r))
	reads := func(raw []byte, want syscall.Errno) {
		t.Helper()
		assert.NoError(t, assert.Err(conn.Write(raw)))
		reply := make([]byte, 16)
		assert.NoError(t, assert.Err(io.ReadFull(conn, reply)))
		if got := syscall.Errno(binary.BigEndian.Uint32(reply[4:])); got != want || string(reply[8:]) != "a handle" {
			t.Errorf("got %v and %q, want %v", got, reply[8:], want)
		}
	}
	reads(request(cmdRead, size, Sector), syscall.EINVAL)
	reads(request(cmdRead, 1<<63, Sector), syscall.EINVAL)
	reads(request(cmdTrim, 0, 0xfffffe00), syscall.EINVAL)
	reads(request(99, 0, 0), syscall.EINVAL)
	reads(append(request(cmdWrite, 1, Sector), make([]byte, Sector)...), syscall.EINVAL)
	reads(append(request(cmdWrite, 0, Sector), sectors("x")...), 0)
	assert.Equal(t, letters(t, r), padded("x"), "the disk")
}

func TestClientsThatBreakTheProtocolAreDisconnectedAndChangeNothing(t *testing.T) {
	r := newRecorder(t)
	socket := serve(t, r)
	option := func(option, length uint32) []byte {
		raw := binary.BigEndian.AppendUint32(nil, fixedNewstyle)
		raw = binary.BigEndian.AppendUint64(raw, magicOption)
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(raw, option), length)
	}
	for name, send := range map[string][]byte{
		"a huge option": option(optGo, 1<<31),
		"abort":         option(optAbort, 0),
		"no option":     append(make([]byte, 4), "GET / HTTP/1.1\r\n\r\n"...),
	} {
		conn := connect(t, socket)
		assert.NoError(t, assert.Err(conn.Write(send)))
		_, err := io.Copy(io.Discard, conn)
		assert.That(t, err == nil || strings.Contains(err.Error(), "reset"), "%s: %v", name, err)
	}
	for name, send := range map[string][]byte{
		"a huge read":  request(cmdRead, 0, 1<<31),
		"a huge write": request(cmdWrite, 0, 1<<31),
		"no request":   bytes.Repeat([]byte("x"), 28),
	} {
		conn := dial(t, socket)
		assert.NoError(t, assert.Err(conn.Write(send)))
		rest, err := io.ReadAll(conn)
		assert.That(t, len(rest) == 0 && (err == nil || strings.Contains(err.Error(), "reset")), "%s: answered %q, %v", name, rest, err)
	}
	half := dial(t, socket)
	assert.NoError(t, assert.Err(half.Write(append(request(cmdWrite, 0, Sector), "half"...))))
	_ = half.Close()
	dice := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		conn := connect(t, socket)
		garbage := make([]byte, dice.IntN(200))
		for i := range garbage {
			garbage[i] = byte(dice.Uint32())
		}
		_, _ = conn.Write(garbage) // the server may have closed the connection
		_ = conn.Close()
	}
	dial(t, socket) // it still serves
	if r.Position() != 0 {
		t.Errorf("%d records", r.Position())
	}
}
