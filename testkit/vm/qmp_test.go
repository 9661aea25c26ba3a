// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A step that pauses a machine that runs on would prove nothing.
func TestACommandWaitsForItsOwnAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "qmp")
	listener := assert.Value(net.Listen("unix", socket))(t)
	defer listener.Close()
	go func() { // answers like QEMU's monitor
		conn, err := listener.Accept()
		if err != nil {
			return
		}

		fmt.Fprintln(conn, `{"QMP": {}}`)
		commands := json.NewDecoder(conn)
		for _, answers := range []string{
			`{"return": {}, "id": 1}`,
			`{"event": "RTC_CHANGE"}{"return": {}, "id": 1}{"error": {"desc": "no such command"}, "id": 2}`,
			`{"return": {}, "id": 3}`,
			`{"event": "BLOCK_IO_ERROR", "data": {"device": "disk", "reason": "No space left on device", "action": "stop"}}`,
		} {
			if commands.Decode(&map[string]any{}) == nil {
				fmt.Fprintln(conn, answers)
			}
		}
	}()
	q := assert.Value(dialQMP(t.Context(), socket, nil))(t)
	defer q.close()
	assert.ErrorHas(t, q.execute(t.Context(), "halt"), "no such command")
	assert.NoError(t, q.execute(t.Context(), "stop"))
	assert.ErrorHas(t, q.execute(t.Context(), "cont"), "QEMU has stopped the machine: it cannot use the file of disk: No space left on device")
}
