package localcluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// running tells if so many pods of the namespace with the label run, and no other.
func running(client kubernetes.Interface, selector string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("fresh").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		var others []string
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning {
				others = append(others, pod.Status.String())
			}
		}
		if len(others) > 0 || len(pods.Items) != want {
			return fmt.Errorf("%s, want %d; that do not run: %s", printable.Count(len(pods.Items), "pod"), want, strings.Join(others, "; "))
		}
		return nil
	}
}
