-- Sends a message: see grns.send_mail. $1 type, $2 payload, $3 agent, $4 pool, $5 workspace, $6 from which agent, $7 correlation_id,
-- $8 in_reply_to, $9 id, $10 seconds until it expires, $11 who does, $12 task, $13 attempt and $14 lease_id of the attempt that sends it
select grns.send_mail($1, $2::text::jsonb, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, false) as sent
