-- A running task has an event a minute, of which nobody is told. The notifier looks for the others every few seconds.
CREATE INDEX IF NOT EXISTS hs_events_told ON task_events(task_id, id) WHERE kind IN ('completed', 'blocked', 'gave_up',
    'crashed', 'timed_out', 'status', 'archived', 'unblocked', 'block_loop_detected', 'review_requested', 'changes_requested');
