package fleet_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// recorder keeps every version of every NodeConfig, in the order in which they were written.
type recorder struct {
	mu   sync.Mutex
	seen []version
}

type version struct {
	name   string
	config *v1alpha1.NodeConfig // nil: it was deleted
}

// record records from now on until ctx ends.
func record(ctx context.Context) (*recorder, error) {
	r := &recorder{}
	add := func(name string, nc *v1alpha1.NodeConfig) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, version{name, nc})
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := &v1alpha1.NodeConfigList{}
				return list, kube.List(ctx, list, &client.ListOptions{Raw: &o})
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return kube.Watch(ctx, &v1alpha1.NodeConfigList{}, &client.ListOptions{Raw: &o})
			},
		},
		ObjectType: &v1alpha1.NodeConfig{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { add(o.(*v1alpha1.NodeConfig).Name, o.(*v1alpha1.NodeConfig)) },
			UpdateFunc: func(_, o any) { add(o.(*v1alpha1.NodeConfig).Name, o.(*v1alpha1.NodeConfig)) },
			DeleteFunc: func(o any) {
				if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
					add(name, nil)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("no NodeConfigs can be watched")
	}
	return r, nil
}

// of returns what was seen of the nodes of a scenario.
func (r *recorder) of(s *scenario) []version {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []version
	for _, v := range r.seen {
		if s.owns(v.name) {
			out = append(out, v)
		}
	}
	return out
}

// owns tells whether a node is one of the scenario's.
func (s *scenario) owns(node string) bool {
	number, ok := strings.CutPrefix(node, s.name+"-")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// replay shows all that the nodes of a scenario went through up to now, change by change.
func (s *scenario) replay(visit func(name string, now map[string]*v1alpha1.NodeConfig)) {
	s.t.Helper()
	s.caughtUp()
	now := map[string]*v1alpha1.NodeConfig{}
	for _, v := range watched.of(s) {
		if now[v.name] = v.config; v.config == nil {
			delete(now, v.name)
		}
		visit(v.name, now)
	}
}

// caughtUp waits until the watch has told what is in the API now.
func (s *scenario) caughtUp() {
	s.t.Helper()
	want := s.nodeConfigs()
	s.until("the watch has told all", func() (string, bool) {
		missing := maps.Clone(want)
		for _, v := range watched.of(s) {
			if w := missing[v.name]; w != nil && v.config != nil && v.config.ResourceVersion == w.ResourceVersion {
				delete(missing, v.name)
			}
		}
		return "it has not of " + strings.Join(slices.Sorted(maps.Keys(missing)), ", "), len(missing) == 0
	})
}

// everGiven are the nodes that were ever assigned a configuration, whatever became of that.
func (s *scenario) everGiven(ref v1alpha1.ConfigMapReference) []string {
	s.t.Helper()
	found := map[string]bool{}
	s.replay(func(name string, now map[string]*v1alpha1.NodeConfig) {
		if nc := now[name]; nc != nil && gives(nc, ref.UID) {
			found[name] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// most is how many nodes were ever something at the same time.
func (s *scenario) most(what func(*v1alpha1.NodeConfig) bool) int {
	s.t.Helper()
	return s.mostOf(what, func(nc *v1alpha1.NodeConfig) string { return nc.Name })
}

// mostOf is how many different values the nodes ever had at the same time that were something: their names, their zones.
func (s *scenario) mostOf(what func(*v1alpha1.NodeConfig) bool, value func(*v1alpha1.NodeConfig) string) int {
	s.t.Helper()
	most := 0
	s.replay(func(_ string, now map[string]*v1alpha1.NodeConfig) {
		values := map[string]bool{}
		for _, nc := range now {
			if what(nc) {
				values[value(nc)] = true
			}
		}
		most = max(most, len(values))
	})
	return most
}

// gives tells whether a NodeConfig assigns a ConfigMap.
func gives(nc *v1alpha1.NodeConfig, uid types.UID) bool {
	s := nc.Spec.ConfigSource
	return s != nil && s.ConfigMapRef != nil && s.ConfigMapRef.UID == uid
}

// runs tells whether a node's kubelet runs a ConfigMap.
func runs(nc *v1alpha1.NodeConfig, uid types.UID) bool {
	return nc.Status.Active != nil && nc.Status.Active.UID == uid
}

// unproven tells whether a node has been given a ConfigMap by a rollout that it has not proven: it has not taken it up, it
// is in its trial, or it has failed.
func unproven(nc *v1alpha1.NodeConfig) bool {
	s, st := nc.Spec.ConfigSource, &nc.Status
	if s == nil || s.ConfigMapRef == nil || s.RolloutRef == nil {
		return false
	}
	good := st.LastKnownGood
	return !runs(nc, s.ConfigMapRef.UID) || good == nil || good.UID != s.ConfigMapRef.UID || unsettled(nc)
}

// unsettled tells whether a node has not taken up what it was given, or is in its trial.
func unsettled(nc *v1alpha1.NodeConfig) bool {
	return nc.Status.ObservedGeneration != nc.Generation || nc.Status.Trial != nil
}
