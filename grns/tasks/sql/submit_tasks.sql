-- Creates tasks, and returns a row for each that was there already: see the function.
-- $1 to $11, $13, $15, $16 to $18: its arrays, $12 who asks, $14 whether the relay must hear of it from Postgres. JSON is sent as text: the connection may be the users' own, and
-- have its own manner of encoding JSON.
select s.ordinal, s.task_id, s.same, s.trace_id
from grns.submit_tasks($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[]::jsonb[],
    $7::double precision[], $8::integer[], $9::text[], $10::text[], $11::uuid[], $12::text,
    $13::timestamptz[], wakes => $14::boolean, uniques => $15::text[]::jsonb[], bounded => true,
    estimates => $16::double precision[], routes => $17::text[], labels => $18::text[]::jsonb[]) as s
