package mover

import (
	"context"
	"net/http"
	"testing"

	"pipedeck/pipeline"
)

// deniedStore answers HEAD with 403 until it has been asked often enough, and
// lists in pages.
type deniedStore struct {
	pipeline.Store
	denials int
	there   bool
	pages   []pipeline.ListPage
}

func (s *deniedStore) Head(_ context.Context, key string) (pipeline.Object, error) {
	s.denials--
	if s.denials >= 0 || !s.there {
		return pipeline.Object{}, &pipeline.StoreError{Op: "head", Key: key, Class: pipeline.StoreMissing, Status: http.StatusForbidden}
	}
	return pipeline.Object{Key: key, Size: 7}, nil
}

func (s *deniedStore) List(context.Context, pipeline.ListRequest) (pipeline.ListPage, error) {
	page := s.pages[0]
	if len(s.pages) > 1 {
		s.pages = s.pages[1:]
	}
	return page, nil
}

func TestADeniedHeadIsNoMissingKey(t *testing.T) {
	t.Parallel()
	empty, more := pipeline.ListPage{}, pipeline.ListPage{Next: "t"}
	found := pipeline.ListPage{Objects: []pipeline.Object{{Key: "k", Size: 7}}}
	other := pipeline.ListPage{Objects: []pipeline.Object{{Key: "k2"}}}
	for name, tc := range map[string]struct {
		store   deniedStore
		missing bool
		fails   bool
	}{
		"missing":                     {deniedStore{pages: []pipeline.ListPage{empty}}, true, false},
		"missing, a longer key":       {deniedStore{pages: []pipeline.ListPage{other}}, true, false},
		"listed":                      {deniedStore{denials: 9, there: true, pages: []pipeline.ListPage{found}}, false, false},
		"listed after an empty page":  {deniedStore{denials: 9, there: true, pages: []pipeline.ListPage{more, found}}, false, false},
		"hidden, and HEAD comes back": {deniedStore{denials: 1, there: true, pages: []pipeline.ListPage{empty}}, false, false},
		"empty pages without end":     {deniedStore{denials: 9, there: true, pages: []pipeline.ListPage{more}}, false, true},
	} {
		obj, err := head(t.Context(), &tc.store, pipeline.StoreProfile{MissingIsDenied: true}, "k")
		switch {
		case tc.missing != isMissing(err), tc.fails != (err != nil && !isMissing(err)):
			t.Errorf("%s: %v", name, err)
		case err == nil && obj.Size != 7:
			t.Errorf("%s: %+v", name, obj)
		}
	}
}
