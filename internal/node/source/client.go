package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
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

// Client talks to the API server as the kubeconfig says, which may not exist yet and may be written anew at any time:
// it is looked at before every request, and the newest one that can be used is used. Certificates that it names as
// files may be replaced in place; client-go sees that within five minutes. Its methods may be called concurrently.
type Client struct {
	path      string // empty: config and http were given
	userAgent string
	timeout   time.Duration // of every request, and until a watch has shown what there is

	mu     sync.Mutex
	info   os.FileInfo // of the kubeconfig that http and config are from
	config *rest.Config
	http   *http.Client
	down   bool
	up     chan struct{} // closed when down ends
}

// NewClient returns a client for a kubeconfig, which is not read yet. The only error is a missing argument.
func NewClient(kubeconfig, userAgent string) (*Client, error) {
	if kubeconfig == "" || userAgent == "" {
		return nil, errors.New("a client needs the path of a kubeconfig and a user agent")
	}
	return &Client{path: kubeconfig, userAgent: userAgent, timeout: 15 * time.Second, up: make(chan struct{})}, nil
}

// NewClientFor returns a client for the API server that a configuration names, which makes its requests with an HTTP client
// that is there: that brings credentials, identity and user agent, and many may share its connections. The only error is
// a missing argument.
func NewClientFor(config *rest.Config, client *http.Client) (*Client, error) {
	if config == nil || client == nil {
		return nil, errors.New("a client needs a configuration and an HTTP client")
	}
	return &Client{config: adapted(config), http: client, timeout: 15 * time.Second, up: make(chan struct{})}, nil
}

// adapted is a configuration for what the agent asks, with a rate limit of its own.
func adapted(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.DisableCompression = true
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(10, 50) // some ten a change
	return config
}

// kubeconfigError means that no request could be made, because there is no kubeconfig to make it with.
type kubeconfigError struct {
	path string
	err  error
}

func (e *kubeconfigError) Error() string { return fmt.Sprintf("kubeconfig %s: %v", e.path, e.err) }
func (e *kubeconfigError) Unwrap() error { return e.err }

// rest returns a REST client for one API group, from the kubeconfig as it is now.
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

// load reads the kubeconfig if it has changed. An error leaves the client with what it had: a kubeconfig that is just
// being written is not a reason to lose the one before.
func (c *Client) load() error {
	if c.path == "" {
		return nil // it was given a configuration
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
	config = adapted(config)
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
	body        any    // encoded as JSON
}

// do makes one request, once: who wants it retried says when. It returns the answer's bytes, and decodes them into
// into, unless that is nil.
func (c *Client) do(ctx context.Context, r request, into runtime.Object) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoAnswer)
	defer cancel()
	raw, err := c.once(ctx, r, into)
	if err != nil && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	c.note(err)
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
	if into != nil {
		// Into would leave it as it is, without an error, if the answer is of another kind.
		got, err := result.Get()
		if err != nil {
			return nil, fmt.Errorf("decode the answer: %w", err)
		}
		if reflect.TypeOf(got) != reflect.TypeOf(into) {
			return nil, fmt.Errorf("decode the answer: it is of kind %q", reflect.TypeOf(got).Elem().Name())
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(got).Elem())
	}
	return result.Raw()
}

// note takes down whether the API server is there, so that whatever waits for its next attempt need not wait when it
// is back.
func (c *Client) note(err error) {
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

// recovered returns a channel that is closed when the API server, having been away, answers again.
func (c *Client) recovered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// KubeletTransport returns a transport that shows a kubelet on this machine the
// node's own client certificate. The kubelet's serving certificate is not
// verified: it is its own affair, and this is for the loopback interface only.
func (c *Client) KubeletTransport() (http.RoundTripper, error) {
	c.mu.Lock()
	err := c.load()
	config := c.config
	c.mu.Unlock()
	if config == nil {
		return nil, &kubeconfigError{c.path, err}
	}
	own := rest.AnonymousClientConfig(config)
	own.CertFile, own.KeyFile, own.CertData, own.KeyData = config.CertFile, config.KeyFile, config.CertData, config.KeyData
	own.Insecure, own.CAFile, own.CAData, own.ServerName, own.Proxy = true, "", nil, "", nil
	return rest.TransportFor(own)
}

// retries is the pace of what is tried again: from half a second up to most, with jitter.
func retries(most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 30, Cap: most}
}

// busyPause is the least that passes before an API server is asked again that has too much to do; up to three times that.
const busyPause = 5 * time.Second

// polite is how long to wait after err, if it would be d otherwise: thousands of agents that ask again at once are what
// keeps an API server busy. The first few times it is asked soon all the same: one that has just been given a CRD says
// the same, and is ready a second later.
func polite(err error, d time.Duration) time.Duration {
	if apierrors.IsTooManyRequests(err) && d > time.Second {
		return max(d, wait.Jitter(busyPause, 2))
	}
	return d
}

// afresh begins a pace anew if the API server, having been away, has answered since recovered was asked for: what one
// that has just started refuses, it may well grant a second later.
func afresh(retry *wait.Backoff, most time.Duration, recovered <-chan struct{}) {
	select {
	case <-recovered:
		*retry = retries(most)
	default:
	}
}

// pause waits for d, or until wake or again is ready. It returns false when ctx has ended.
func pause(ctx context.Context, d time.Duration, wake, again <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-again:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}
