-- Pauses a limit; one that is paused keeps its time, and gets another reason. $1 workspace, $2 name, $3 who asks, $4 reason
update grns.limits l
set paused_at = coalesce(l.paused_at, now()), paused_by = $3, pause_reason = $4, version = l.version + 1
where l.workspace = $1 and l.name = $2
