package printable

import (
	"fmt"
	"strings"
)

// Few joins at most ten names, and counts the others.
func Few(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
