// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// The program object-health prints what GitOps controllers make of an API
// object on standard input: its status by the library kstatus, which Flux uses,
// and its health by the script of an Argo CD health check.
//
//	object-health FILE.lua < OBJECT.json
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "object-health:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: object-health FILE.lua < OBJECT.json")
	}

	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("read the object: %w", err)
	}

	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("decode the object: %w", err)
	}

	argo, err := argoHealth(os.Args[1], object.Object)
	if err != nil {
		return err
	}

	computed, err := status.Compute(object)
	if err != nil {
		return fmt.Errorf("kstatus: %w", err)
	}

	return json.NewEncoder(os.Stdout).Encode(map[string]health{
		"kstatus": {computed.Status.String(), computed.Message}, "argo": argo,
	})
}

// argoHealth runs a health check as Argo CD does: the object is the global
// variable obj, and the script returns a table.
func argoHealth(script string, object map[string]any) (health, error) {
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", value(l, object))
	if err := l.DoFile(script); err != nil {
		return health{}, fmt.Errorf("run %s: %w", script, err)
	}

	table, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("%s returned %s, not a table", script, l.Get(-1))
	}

	return health{lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))}, nil
}

// value converts a decoded JSON value.
func value(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, value(l, item))
		}

		return table
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(value(l, item))
		}

		return table
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	}

	return lua.LNil
}
