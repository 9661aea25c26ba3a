package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// runningFile is beside the records, but none of them.
const runningFile = "running"

// SetRunning keeps what an agent says of the kubelet that it runs, for Running.
// It counts only as long as that agent does, so that it need not survive a power
// cut. What cannot be kept leaves nothing: old news would be taken for new.
func SetRunning(fsys atomicfile.FS, dir string, about []byte) error {
	err := setRunning(fsys, filepath.Join(dir, runningFile), about)
	if err != nil {
		err = errors.Join(err, ClearRunning(fsys, dir))
	}
	return err
}

// ClearRunning removes what an agent of before has said, if it has.
func ClearRunning(fsys atomicfile.FS, dir string) error {
	err := fsys.Remove(filepath.Join(dir, runningFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func setRunning(fsys atomicfile.FS, path string, about []byte) error {
	temp := fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), atomicfile.TempSuffix)
	f, err := fsys.Create(temp, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(about)
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // the first error is the one to tell
	}
	return err
}

// Running returns what an agent has kept with SetRunning. It is no news of an
// agent that has ended.
func Running(fsys atomicfile.FS, dir string) ([]byte, error) {
	return readSane(fsys, filepath.Join(dir, runningFile))
}
