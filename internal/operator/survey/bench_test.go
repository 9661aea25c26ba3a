// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// BenchmarkSurveyOf5000Nodes reads and groups 5,000 nodes whose kubelets answer
// after 5 ms. The floor is the same requests by client-go alone, 20 at a time.
func BenchmarkSurveyOf5000Nodes(b *testing.B) {
	const fleet, took = 5000, 5 * time.Millisecond
	var fields []string
	for i, f := range payload.Fields { // as many fields and bytes as a kubelet's answer
		if !strings.Contains(f.Path, ".") && f.Path != "tlsCertFile" && f.Path != "maxPods" {
			fields = append(fields, fmt.Sprintf(`%q: "value of field %d 0123456789"`, f.Path, i))
		}
	}

	body := `{"kubeletconfig": {"maxPods": 110, "tlsCertFile": "/etc/%s.crt", ` + strings.Join(fields, ", ") + `}}`
	api := server(b, func(node string, w http.ResponseWriter, r *http.Request) {
		time.Sleep(took)
		says(200, strings.Replace(body, "%s", node, 1))(w, r)
	})
	nodes := named(fleet)
	var floor, all time.Duration
	for b.Loop() {
		begin := b.Elapsed()
		floorOf(b, api, nodes)
		between := b.Elapsed()
		floor += between - begin
		answers, err := Read(b.Context(), api, nodes, Patience, quiet)
		if r := NewReport(answers, today); err != nil || len(r.Configurations) != 1 || r.Read != fleet {
			b.Fatalf("%d of %d in %d groups, %v", r.Read, fleet, len(r.Configurations), err)
		}

		all += b.Elapsed() - between
	}

	b.ReportMetric(all.Seconds()/float64(b.N), "s/survey")
	b.ReportMetric(float64(all)/float64(floor), "times-floor")
}

func floorOf(b *testing.B, api rest.Interface, nodes []Node) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, AtOnce)
	for _, n := range nodes {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if _, err := api.Get().Resource("nodes").Name(n.Name).SubResource("proxy").Suffix("configz").DoRaw(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}

	wait.Wait()
}
