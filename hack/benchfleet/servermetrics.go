// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// samples are values of metrics at one time.
type samples model.Vector

// read are the metrics that are read; an API server has thousands of others.
var read = []string{"apiserver_request_total", "apiserver_longrunning_requests", "apiserver_storage_size_bytes", planDuration}

// parseMetrics returns the values of the metrics that are read, from their text format.
func parseMetrics(text string) (samples, error) {
	var wanted strings.Builder
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(read, func(name string) bool { return strings.HasPrefix(strings.TrimPrefix(line, "# TYPE "), name) }) {
			wanted.WriteString(line)
		}
	}
	decoder := &expfmt.SampleDecoder{
		Dec: expfmt.NewDecoder(strings.NewReader(wanted.String()), expfmt.NewFormat(expfmt.TypeTextPlain)), Opts: &expfmt.DecodeOptions{},
	}
	var all samples
	for {
		var some model.Vector
		err := decoder.Decode(&some)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
}

// serverMetrics reads the metrics of the API server.
func (w *world) serverMetrics(ctx context.Context) (_ samples, err error) {
	defer must.Catch(&err)

	raw := must.Get(w.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
	return parseMetrics(string(raw))
}

// sum adds the values of a metric with these labels; by returns the group of each, from its labels.
func (s samples) sum(name string, labels model.Metric, by func(model.Metric) string) map[string]float64 {
	out := map[string]float64{}
	for _, sample := range s {
		is := string(sample.Metric[model.MetricNameLabel]) == name
		for key, value := range labels {
			is = is && sample.Metric[key] == value
		}
		if is {
			out[by(sample.Metric)] += float64(sample.Value)
		}
	}
	return out
}

func (s samples) one(name string, labels model.Metric) float64 {
	return s.sum(name, labels, func(model.Metric) string { return "" })[""]
}

// requests returns the number of requests that the API server has answered since its start, by kind.
func (s samples) requests() map[string]float64 {
	return s.sum("apiserver_request_total", nil, func(m model.Metric) string {
		kind := string(m["verb"] + " " + m["resource"])
		switch {
		case m["resource"] == "":
			return "others"
		case m["subresource"] != "":
			kind += "/" + string(m["subresource"])
		}
		return kind
	})
}

// refused returns the number of requests that the API server has refused because of its load.
func (s samples) refused() float64 {
	return s.one("apiserver_request_total", model.Metric{"code": "429"})
}

// watches returns the number of open watches of a resource.
func (s samples) watches(resource string) float64 {
	return s.one("apiserver_longrunning_requests", model.Metric{"resource": model.LabelValue(resource), "verb": "WATCH"})
}

// mean returns the mean of a histogram in seconds, and the number of its observations.
func (s samples) mean(name string) (seconds, count float64, err error) {
	count = s.one(name+"_count", nil)
	if count == 0 {
		return 0, 0, fmt.Errorf("the metric %s has no observation", name)
	}
	return s.one(name+"_sum", nil) / count, count, nil
}
