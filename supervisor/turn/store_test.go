package turn

import "github.com/hermes-supervisor/hermes-supervisor/store"

var (
	_ Store = (*store.State)(nil)
	_ Board = (*store.Board)(nil)
)
