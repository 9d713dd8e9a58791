-- Seals a workflow: see the function. $1 id, $2 workspace, $3 who asks
select grns.seal_workflow($1::text, $2::text, $3::text)
