// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// Client talks to the API server that a kubeconfig names. The file may be
// missing at first, and may change at any time: Client checks it before every
// request, and keeps the last usable version. client-go notices certificate
// files that are replaced in place within five minutes. All methods may be
// called concurrently.
type Client struct {
	path      string // empty: config and http were passed in
	userAgent string
	timeout   time.Duration // of each request, and of the initial list of a watch

	mu     sync.Mutex
	info   os.FileInfo // the kubeconfig that http and config come from
	config *rest.Config
	http   *http.Client
	down   bool
	up     chan struct{} // closed when down becomes false
}

// NewClient returns a client for a kubeconfig, which it does not read yet. The
// only error is an empty argument.
func NewClient(kubeconfig, userAgent string) (*Client, error) {
	if kubeconfig == "" || userAgent == "" {
		return nil, errors.New("a client needs the path of a kubeconfig and a user agent")
	}

	return &Client{path: kubeconfig, userAgent: userAgent, timeout: requestTimeout, up: make(chan struct{})}, nil
}

// NewClientFor returns a client that uses an existing HTTP client, with its
// credentials and user agent. Several Clients may share one HTTP client and its
// connections. The only error is a nil argument.
func NewClientFor(config *rest.Config, client *http.Client) (*Client, error) {
	if config == nil || client == nil {
		return nil, errors.New("a client needs a configuration and an HTTP client")
	}

	return &Client{config: restConfig(config), http: client, timeout: requestTimeout, up: make(chan struct{})}, nil
}

// restConfig is a copy of config with the encoding and rate limit of the agent.
func restConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.DisableCompression = true
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(10, 50) // a configuration change takes about ten requests

	return config
}

// kubeconfigError means that no request was made, because no kubeconfig is
// usable.
type kubeconfigError struct {
	path string
	err  error
}

func (e *kubeconfigError) Error() string { return fmt.Sprintf("kubeconfig %s: %v", e.path, e.err) }
func (e *kubeconfigError) Unwrap() error { return e.err }

// rest returns a REST client for one API group, from the current kubeconfig.
func (c *Client) rest(gv schema.GroupVersion) (*rest.RESTClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil && c.config == nil {
		return nil, &kubeconfigError{c.path, err}
	}

	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}

	return rest.RESTClientForConfigAndClient(config, c.http)
}

// load reads the kubeconfig if it has changed. After an error the client keeps
// its last configuration: the kubeconfig may be half-written.
func (c *Client) load() error {
	if c.path == "" {
		return nil
	}

	info, err := os.Stat(c.path)
	if err != nil {
		return err
	}
	if c.info != nil && os.SameFile(c.info, info) && c.info.ModTime().Equal(info.ModTime()) && c.info.Size() == info.Size() {
		return nil
	}

	config, err := clientcmd.BuildConfigFromFlags("", c.path)
	if err != nil {
		return err
	}

	config = restConfig(config)
	config.UserAgent = c.userAgent
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}

	c.info, c.config, c.http = info, config, client

	return nil
}

// request is one request that is not a watch.
type request struct {
	verb        string // of HTTP
	gv          schema.GroupVersion
	namespace   string
	resource    string
	name        string
	subresource string
	query       map[string]string
	contentType string // of body; empty: JSON
	accept      string // encoding of the answer; empty: JSON
	body        any    // encoded as JSON
}

// do makes one request, without a retry. It returns the bytes of the answer,
// and decodes them into into unless that is nil.
func (c *Client) do(ctx context.Context, r request, into runtime.Object) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoAnswer)
	defer cancel()
	raw, err := c.once(ctx, r, into)
	if err != nil && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}

	c.noteReachable(err)

	return raw, err
}

func (c *Client) once(ctx context.Context, r request, into runtime.Object) ([]byte, error) {
	client, err := c.rest(r.gv)
	if err != nil {
		return nil, err
	}

	q := client.Verb(r.verb).NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.resource).MaxRetries(0)
	if r.name != "" {
		q.Name(r.name)
	}
	if r.subresource != "" {
		q.SubResource(r.subresource)
	}

	for key, value := range r.query {
		q.Param(key, value)
	}
	if r.accept != "" {
		q.SetHeader("Accept", r.accept+","+runtime.ContentTypeJSON)
	}

	if r.body != nil {
		body, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}

		q.Body(body).SetHeader("Content-Type", cmp.Or(r.contentType, runtime.ContentTypeJSON))
	}

	result := q.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}

	raw, err := result.Raw()
	if err == nil && into != nil {
		if err := runtime.DecodeInto(codecs.UniversalDeserializer(), raw, into); err != nil { // also if the answer is of another kind
			return nil, fmt.Errorf("decode the answer: %w", err)
		}
	}

	return raw, err
}

// noteReachable records whether the API server answers, so that waiting retries
// start as soon as it is back.
func (c *Client) noteReachable(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && c.down:
		c.down = false
		close(c.up)
		c.up = make(chan struct{})
	case err != nil && !answered(err):
		c.down = true
	}
}

// recovered returns a channel that is closed when the API server answers again
// after an outage.
func (c *Client) recovered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// KubeletTransport returns a transport for requests to the kubelet of this
// machine, with the client certificate of the node and no other credentials. It
// does not verify the serving certificate of the kubelet, which learns nothing
// secret from a client certificate. It uses no proxy, and keeps no connection.
func (c *Client) KubeletTransport() (http.RoundTripper, error) {
	c.mu.Lock()
	err := c.load()
	config := c.config
	c.mu.Unlock()
	if config == nil {
		return nil, &kubeconfigError{c.path, err}
	}

	client := rest.AnonymousClientConfig(config)
	client.CertFile, client.KeyFile, client.CertData, client.KeyData = config.CertFile, config.KeyFile, config.CertData, config.KeyData
	client.Insecure, client.CAFile, client.CAData, client.ServerName = true, "", nil, ""
	tls, err := rest.TLSConfigFor(client)
	if err != nil {
		return nil, &kubeconfigError{c.path, err}
	}

	return &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}, nil
}

const (
	requestTimeout = 15 * time.Second // of one request; a watch has it for its list
	// longestWatchDelay is the longest delay between two attempts to watch what
	// is assigned, without jitter.
	longestWatchDelay = 20 * time.Second
	backoffJitter     = 2           // a delay is longer by up to this part of it
	reportPause       = time.Second // before a report after an outage; the most is twice as long
)

// LongestReturn is how long an agent may take, after an outage of the API
// server, to see its assignment and to report: one request that hangs, one
// delay, and the pause of the Reporter. The controller gives it this time
// before any timeout of its node runs.
const LongestReturn = requestTimeout + longestWatchDelay + longestWatchDelay/backoffJitter + 2*reportPause

// retry spaces the attempts of one goroutine at a request. When the API server
// answers again after an outage, the next attempt follows at once, or after
// pause, and the delays begin again: what the API server refuses just after its
// start it may accept a second later.
type retry struct {
	client    *Client
	limit     time.Duration // of a delay
	pause     time.Duration // the least delay after an outage; the most is twice as long
	backoff   wait.Backoff
	recovered <-chan struct{} // closed by the next recovery
}

func newRetry(client *Client, limit time.Duration) *retry {
	r := &retry{client: client, limit: limit}
	r.reset()
	return r
}

// reset makes the delays begin again.
func (r *retry) reset() { r.backoff, r.recovered = newBackoff(r.limit), r.client.recovered() }

// wait waits until the next attempt is due after err, or until wake is ready,
// and takes what wake has: the next attempt answers it. It returns false if ctx
// has ended.
func (r *retry) wait(ctx context.Context, err error, wake <-chan struct{}) bool {
	if !sleep(ctx, retryDelay(err, r.backoff.Step()), r.recovered, wake) {
		return false
	}

	select {
	case <-r.recovered:
		r.reset()
		if r.pause > 0 && !sleep(ctx, wait.Jitter(r.pause, 1), wake, nil) {
			return false
		}
	default:
	}

	select {
	case <-wake: // several reasons to go on may be there at the same time
	default:
	}

	return true
}

// newBackoff returns delays from half a second up to limit, with jitter.
func newBackoff(limit time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 1. / backoffJitter, Steps: 30, Cap: limit}
}

// overloadedDelay is the least delay before a retry at an overloaded API
// server; with jitter up to three times as long.
const overloadedDelay = 5 * time.Second

// retryDelay returns the delay after err, which is d for most errors: thousands
// of agents that retry at once keep an API server overloaded. The first retries
// are not delayed: an API server that has just received a CRD also answers 429,
// and is ready a second later.
func retryDelay(err error, d time.Duration) time.Duration {
	if apierrors.IsTooManyRequests(err) && d > time.Second {
		return max(d, wait.Jitter(overloadedDelay, 2))
	}

	return d
}

// sleep waits for d, or until wake or again is ready. It returns false if ctx
// has ended.
func sleep(ctx context.Context, d time.Duration, wake, again <-chan struct{}) bool {
	select {
	case <-time.After(d):
	case <-wake:
	case <-again:
	case <-ctx.Done():
		return false
	}

	return ctx.Err() == nil
}
