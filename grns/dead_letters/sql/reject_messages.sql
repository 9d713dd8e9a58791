-- Keeps messages that could not be accepted, whole, and tells subscribers of each.
-- $1 workspaces, $2 reasons, $3 details, $4 subjects, $5 streams, $6 sequence numbers, $7 delivery counts,
-- $8 headers, $9 bodies, $10 sha256 of the bodies, $11 bodies in base64, the first part, $12 headers, the first ones,
-- $13 traces, $14 ids that they have as envelopes (null: it could not be read)
with wanted as (
    select w.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::integer[],
                $8::text[]::jsonb[], $9::bytea[], $10::text[], $11::text[], $12::text[]::json[], $13::text[], $14::uuid[])
        as w (workspace, reason, detail, subject, stream, stream_seq, delivery_count, headers, body, sha, head,
            head_of_headers, trace_id, causation_id)
),
rejected as (
    insert into grns.dead_letters (workspace, reason, detail, subject, stream, stream_seq, delivery_count, headers,
        body, body_sha256)
    select w.workspace, w.reason, w.detail, w.subject, w.stream, w.stream_seq, w.delivery_count, w.headers, w.body,
        w.sha
    from wanted w
    on conflict on constraint dead_letters_once do nothing
    returning *
),
logged as (
    insert into grns.events (version, message_id, workspace, kind, trace_id, causation_id, payload)
    select 0, b.id, b.workspace, 'dlq.message.rejected', coalesce(w.trace_id, replace(b.id::text, '-', '')), w.causation_id,
        json_build_object('reason', b.reason, 'detail', b.detail, 'subject', b.subject, 'stream', b.stream,
            'stream_seq', b.stream_seq, 'delivery_count', b.delivery_count, 'headers', w.head_of_headers,
            'body_base64', w.head, 'body_size', octet_length(b.body), 'body_sha256', b.body_sha256)
    from rejected b
    join wanted w on w.stream = b.stream and w.stream_seq = b.stream_seq and w.sha = b.body_sha256
)
select b.id, b.reason from rejected b
