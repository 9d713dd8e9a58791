-- Names the attempt that a transaction belongs to: what is submitted in it by SQL belongs to the same trace.
-- $1 trace_id, $2 causation_id or nothing
select set_config('grns.trace_id', $1::text, true), set_config('grns.causation_id', $2::text, true)
