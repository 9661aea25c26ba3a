package rehearsal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
)

func TestAKubeletIsHealthyWhenThatIsDueEvenIfItsTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{heartbeat: &heartbeat{ended: true}} // it writes nothing
		started, err := k.Start(t.Context(), component.RunConfig{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		started.(*process).timer.Stop()
		if started.Healthy() {
			t.Error("it is healthy at its start")
		}
		time.Sleep(startDelay)
		if !started.Healthy() {
			t.Error("it is not healthy although that is due")
		}
	})
}
