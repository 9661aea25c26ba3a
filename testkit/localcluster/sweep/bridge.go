// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AddBridge creates a network bridge. The error is unix.EEXIST if an interface
// of that name exists.
func AddBridge(name string) error {
	return withSocket(name, func(socket int) error { return bridgeCall(socket, unix.SIOCBRADDBR, name) })
}

// RemoveBridge takes a network bridge down and removes it. A missing bridge is
// not an error.
func RemoveBridge(name string) error {
	return withSocket(name, func(socket int) error {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}

		request.SetUint16(0) // without IFF_UP, because a bridge that is up cannot be removed
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
		if err == nil {
			err = bridgeCall(socket, unix.SIOCBRDELBR, name)
		}
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			return nil
		}

		return err
	})
}

func withSocket(name string, do func(socket int) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}

	err = errors.Join(do(socket), unix.Close(socket))
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}

	return nil
}

// bridgeCall passes a plain name; x/sys has no wrapper for that.
func bridgeCall(socket int, call uint, name string) error {
	bytes, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), uintptr(call), uintptr(unsafe.Pointer(bytes))); errno != 0 {
		return errno
	}

	return nil
}
