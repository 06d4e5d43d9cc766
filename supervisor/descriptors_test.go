package supervisor

import (
	"errors"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

func TestATooLowLimitOfOpenFilesIsRefusedWithWhatToDo(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		workers int
		ok      bool
	}{
		{64, 5, false}, {139, 5, false}, {140, 5, true}, {1024, 5, true}, {1024, 100, false}, {sample.Unlimited, 100, true},
	} {
		err := enoughDescriptors(c.limit, c.workers)
		if (err == nil) != c.ok {
			t.Errorf("limit %d for %d workers: %v", c.limit, c.workers, err)
		}
		if err != nil && (!errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "ulimit -n")) {
			t.Errorf("limit %d: %v", c.limit, err)
		}
	}
	if limit, err := ownLimit(); err != nil || limit == 0 {
		t.Errorf("own limit %d, %v", limit, err)
	}
}

func TestOnlyDescriptorsThatNobodyNeedsAreSpentToSpareWork(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		workers int
		want    int
	}{
		{140, 5, 0}, {139, 5, 0}, {200, 5, 30}, {1024, 5, 442}, {sample.Unlimited, 100, sample.KinDescriptors},
	} {
		if got := spareDescriptors(c.limit, c.workers); got != c.want {
			t.Errorf("limit %d for %d workers: %d, want %d", c.limit, c.workers, got, c.want)
		}
	}
}
