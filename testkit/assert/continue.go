package assert

// OK fails the test if err is not nil, and lets it continue. The message begins with what the error is about.
func OK(t T, err error, about ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s%v", prefix(about), err)
	}
}

// Value returns a function that returns a value, and ends the test if err is not nil: assert.Value(os.Open(name))(t).
func Value[V any](v V, err error) func(t T, about ...any) V {
	return func(t T, about ...any) V {
		t.Helper()
		NoError(t, err, about...)
		return v
	}
}
