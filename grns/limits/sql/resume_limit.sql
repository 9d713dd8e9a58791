-- Resumes a limit. $1 workspace, $2 name, $3 who asks
update grns.limits l
set paused_at = null, paused_by = null, pause_reason = null, updated_by = $3, version = l.version + 1
where l.workspace = $1 and l.name = $2
