"""The bugs that `make mutants` sows: where each is, and what its check has to say of it.

Each check says why it fails in its own words: the walks name the step that differs from the model, a storm and the
points what was violated, a test its assertion.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grns.postgres.statements import paths

_ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Edit:
    """What is written at a place, and what is written there instead."""

    place: str
    right: str
    wrong: str


@dataclass(frozen=True)
class Mutant:
    """One bug: its edits, the check that has to find it, and by one of which words.

    `at` says where the check looks: the faults of a storm, the points to strike at, a test; all where nothing is said.
    """

    name: str
    check: str
    words: tuple[str, ...]
    edits: tuple[Edit, ...]
    at: str = ""


def _walks(name: str, statement: str, step: str, right: str, wrong: str) -> Mutant:
    """A bug in a statement, which differs from the model at a step."""
    return Mutant(name, "walks", (f"in _{step}",), (_sql(statement, right, wrong),))


def _sql(statement: str, right: str, wrong: str) -> Edit:
    return Edit(str(paths()[statement].relative_to(_ROOT)), right, wrong)


_FENCE = "t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace\n        and t.status = 'running'"
_FIRST_EVENT = "(select e.message_id from grns.events e where e.task_id = r.id and e.route is not null order by e.seq limit 1)"

_SCHEMA = "grns/postgres/migrations/sql/0001_initial"
_QUESTIONS = f"{_SCHEMA}/20_questions.sql"
_STEPS, _SUBMIT = f"{_SCHEMA}/18_steps.sql", f"{_SCHEMA}/06_submit_tasks.sql"

MUTANTS = (
    _walks("finish without the fence", "finish", "finish", f"where {_FENCE}", "where t.status = 'running'"),
    _walks("finish by the attempt alone, whoever has it now", "finish", "finish",
           "t.attempt = w.attempt and t.lease_id = w.lease_id", "t.attempt >= w.attempt"),
    _walks("renew without the fence", "renew", "renew", f"where {_FENCE}", "where t.status = 'running'"),
    _walks("release without the fence", "release", "release", f"where {_FENCE}", "where t.status = 'running'"),
    _walks("claim what is not due", "claim", "claim", "and (t.next_attempt_at is null or t.next_attempt_at <= now())", ""),
    _walks("claim without counting the attempt", "claim", "compare", "attempt = t.attempt + 1", "attempt = t.attempt"),
    _walks("claim without its event", "claim", "compare", "from claimed c\n)", "from claimed c where false\n)"),
    _walks("reap whoever is running", "reap", "swept", "t.lease_until is not null and t.lease_until < now()", "t.lease_until is not null"),
    _walks("a reaper that never buries", "reap", "compare", "when s.is_spared or t.attempt - t.uncounted_attempts < t.attempt_limit then 'queued'\n            else 'dead'", "else 'queued'"),
    _walks("a reaper that sends no command", "reap", "compare", "case r.status when 'queued' then grns.command_route(r.agent_type, r.priority, r.route) end", "null"),
    # JetStream drops it; in a storm the workers' poll would find the task all the same.
    Mutant(
        "a reaper that sends the first command again, with its id", "walks", ("the broker drops an id that it has seen",),
        (_sql("reap", "select r.version, r.event_id, r.workspace", f"select r.version, {_FIRST_EVENT}, r.workspace"),),
    ),
    _walks("a release that spends the attempt", "release", "compare",
           "uncounted_attempts = t.uncounted_attempts + case when l.target = 'queued' and l.is_forgiven then 1 else 0 end", "uncounted_attempts = t.uncounted_attempts"),
    Mutant(
        "a release that forgives for ever", "tests", ("('queued', 3)",),
        (_sql("release", "t.released < t.attempt_limit or not $7::boolean or s.is_spared as is_forgiven", "true as is_forgiven"),),
        "tests/worker/test_executor.py::test_claims_that_have_begun_are_forgiven_as_often_as_the_task_may_be_attempted",
    ),
    _walks("retries that never end", "finish", "finish", "when w.verb <> 'snooze' and not s.is_spared and t.attempt - t.uncounted_attempts >= t.attempt_limit then 'dead'", ""),
    _walks("finish that ignores a request to cancel", "finish", "finish", "when t.cancel_requested_at is not null then 'cancelled'", ""),
    _walks("dead without a dead letter", "finish", "compare", "where f.status in ('failed', 'dead')", "where f.status = 'failed'"),
    _walks("promote what is not due", "promote", "swept", "and t.next_attempt_at <= now()", ""),
    _walks("redrive without a fresh budget", "redrive", "compare", "uncounted_attempts = t.attempt", "uncounted_attempts = t.uncounted_attempts"),
    Mutant(
        "sent on with the id of the command that came", "tests", ("assert news[\"message_id\"]", "assert UUID("),
        (_sql("dispatch", "insert into grns.events (version, workspace,", "insert into grns.events (version, message_id, workspace,"),
         _sql("dispatch", "select t.version, t.workspace,", "select t.version, w.causation_id, t.workspace,")),
        "tests/worker/test_executor.py::test_what_is_not_for_us_now_is_sent_on",
    ),
    Mutant(
        "a step recorded by an attempt that has lost its task", "tests", ("DID NOT RAISE",),
        (_sql("record_steps", "where w.id = t.id and w.attempt = t.attempt and w.lease_id = t.lease_id and", "where w.id = t.id and"),
         _sql("record_steps", "(w.id, w.attempt, w.lease_id, w.workspace) in (select h.id, h.attempt, h.lease_id, h.workspace from held h)",
              "w.id in (select h.id from held h)")),
        "tests/worker/test_steps.py::test_only_the_attempt_that_owns_the_task_records",
    ),
    Mutant(
        "a step whose last value stays", "tests", ("the first value stays",),
        (_sql("record_steps", "on conflict (task_id, name) do nothing", "on conflict (task_id, name) do update set value = excluded.value"),
         _sql("record_steps", "    s.value::text as value", "    w.value::text as value")),
        "tests/worker/test_steps.py::test_only_the_attempt_that_owns_the_task_records",
    ),
    Mutant(
        "a single step recorded by an attempt that has lost its task", "tests", ("DID NOT RAISE",),
        (_sql("record_step", "t.id = $1 and t.attempt = $2 and t.lease_id = $3 and", "t.id = $1 and coalesce($2, 0) > 0 and $3::uuid is not null and"),),
        "tests/worker/test_steps.py::test_only_the_attempt_that_owns_the_task_records",
    ),
    Mutant(
        "a single step whose last value stays", "tests", ("the first value stays",),
        (_sql("record_step", "on conflict (task_id, name) do nothing", "on conflict (task_id, name) do update set value = excluded.value"),),
        "tests/worker/test_steps.py::test_only_the_attempt_that_owns_the_task_records",
    ),
    Mutant(
        "a step recorded while the reaper takes the task", "tests", ("a new attempt would not see the step",),
        (_sql("record_step", "    for share skip locked\n", ""), _sql("record_steps", "    for share of t skip locked\n", "")),
        "tests/worker/test_steps.py::test_a_step_that_is_being_recorded_holds_off_the_reaper",
    ),
    Mutant(
        "a checkpoint of an attempt that has lost its task", "tests", ("assert 'recorded' == 'lost'",),
        (_sql("record_progress", "where w.id = t.id and w.attempt = t.attempt and w.lease_id = t.lease_id and", "where w.id = t.id and"),
         _sql("record_progress", "join held h on h.id = w.id and h.attempt = w.attempt and h.lease_id = w.lease_id and h.workspace = w.workspace",
              "join held h on h.id = w.id")),
        "tests/worker/test_progress.py::test_only_the_attempt_that_owns_the_task_reports",
    ),
    Mutant(
        "a checkpoint that is gone with its attempt", "tests", ("'begins', None)",),
        (_sql("record_progress", "checkpoint = coalesce(excluded.checkpoint, p.checkpoint)", "checkpoint = excluded.checkpoint"),),
        "tests/worker/test_progress.py::test_a_checkpoint_outlives_each_end_of_an_attempt",
    ),
    Mutant(
        "an outcome without the last checkpoint before it", "tests", ("assert (None, None, None)",),
        (Edit("grns/worker/executor.py", "await self._persist(context._progress.flush)", "pass"),),
        "tests/worker/test_progress.py::test_the_next_attempt_gets_the_last_checkpoint",
    ),
    Mutant(
        "a stalled attempt that goes on to renew", "tests", ("assert ('running'", "assert 'running'"),
        (_sql("end_stalled", "set lease_id = gen_random_uuid(), lease_until = now()", "set updated_at = now()"),),
        "tests/worker/test_progress.py::test_a_stalled_attempt_is_ended_and_queued_one_priority_higher",
    ),
    Mutant(
        "an attempt that stalls although it records steps", "tests", ("assert 'queued' == 'running'",),
        (_sql("end_stalled", "greatest(d.stalls_at, d.reported_at + d.patience, s.recorded_at + d.patience)", "greatest(d.stalls_at, d.reported_at + d.patience)"),),
        "tests/worker/test_progress.py::test_a_recorded_step_is_progress",
    ),
    Mutant(
        "an answer to what is not asked any more", "tests", ("DID NOT RAISE",),
        (Edit(_QUESTIONS, "    elsif asked.digest is distinct from shown_digest then\n        return 'changed';\n", ""),
         Edit("grns/tasks/questions.py", 'if asked.state == "open" and asked.digest != digest:', "if False:")),
        "tests/worker/test_questions.py::test_an_answer_to_something_else_is_refused",
    ),
    Mutant(
        "an answer that is used for something else", "tests", ("it is asked anew",),
        (Edit(_STEPS, "    if shown_digest is not null then\n        perform grns.reopen_question(id, step, shown_digest);\n    end if;\n", ""),),
        "tests/worker/test_questions.py::test_what_was_answered_is_not_used_for_what_is_shown_later",
    ),
    Mutant(
        "two answers to one question", "tests", ("assert",),
        (Edit(_QUESTIONS, "    if asked.state = 'answered' then\n        return case when asked.answered_by is not distinct from actor and asked.answer = answer then 'repeated' else 'taken' end;\n    elsif", "    if"),),
        "tests/worker/test_questions.py::test_one_of_many_answers_counts",
    ),
    Mutant(
        "an approval by who submitted the task", "tests", ("DID NOT RAISE",),
        (Edit(_QUESTIONS, "asked.submitted_by in (actor, substr(actor, length('link:') + 1))", "false"),),
        "tests/worker/test_questions.py::test_an_approval_does_not_come_from_who_submitted_the_task",
    ),
    Mutant(
        "an operation that moves again what a later one has moved", "tests", ("assert 1 == 0", "assert 'cancelled' == 'queued'"),
        (_sql("cancel_batch", "and coalesce(t.operation_id, 0) < $1\n", "and t.operation_id is distinct from $1\n"),),
        "tests/operations/test_batches.py::test_an_operation_leaves_alone_what_a_later_one_has_moved",
    ),
    Mutant(
        "a sleep that spends the attempt", "tests", ("('time', 0, None)",),
        (Edit(_STEPS, "uncounted_attempts = t.uncounted_attempts + 1", "uncounted_attempts = t.uncounted_attempts"),),
        "tests/worker/test_steps.py::test_a_sleep_gives_the_slot_away_and_spends_no_attempt",
    ),
    Mutant(
        "a sleep that begins again", "tests", ("assert datetime.datetime",),
        (Edit(_STEPS, "on conflict (task_id, name) do nothing;\n        select", "on conflict (task_id, name) do update set value = excluded.value;\n        select"),),
        "tests/worker/test_steps.py::test_a_sleep_gives_the_slot_away_and_spends_no_attempt",
    ),
    Mutant(
        "a suspension without its step", "tests", ("assert 'failed' == 'waiting'",),
        (Edit(_STEPS, "values (id, deadline, workspace, 'sleep', jsonb_build_object('until', extract(epoch from clock) + seconds), attempt)",
              "select id, deadline, workspace, 'sleep', jsonb_build_object('until', extract(epoch from clock) + seconds), attempt where false"),),
        "tests/worker/test_steps.py::test_a_sleep_gives_the_slot_away_and_spends_no_attempt",
    ),
    Mutant(
        "a time-out that is not recorded", "tests", ("assert 'waiting' == 'succeeded'",),
        (Edit(_STEPS, "answer := '{\"timed_out\": true}';", "return '{\"timed_out\": true}'::jsonb;"),),
        "tests/worker/test_signals.py::test_the_time_out_is_recorded",
    ),
    Mutant(
        "a time limit that begins again", "tests", ("assert datetime.datetime",),
        (Edit(_STEPS, "on conflict (task_id, name) do nothing;\n        select", "on conflict (task_id, name) do update set value = excluded.value;\n        select"),),
        "tests/workflows/test_wait.py::test_an_attempt_before_the_time_waits_again_until_then",
    ),
    Mutant(
        "tasks that join each other and wait for ever", "tests", ("assert 'queued' in",),
        (_sql("follow_log", "grns.waits_for_task(o.task_id, o.task_id)", "false"),),
        "tests/workflows/test_wait.py::test_tasks_that_join_each_other_at_the_same_moment",
    ),
    Mutant(
        "a follower that counts what a join has counted", "tests", ("DID NOT RAISE",),
        (_sql("follow_log", " or grns.refuse_stale() as is_counted", " or true as is_counted"),),
        "tests/workflows/test_fan_out.py::test_the_follower_reads_again_what_it_counted_while_a_task_began_to_wait",
    ),
    Mutant(
        "a submission merged into a task that has begun", "tests", ("where False = Submitted(",),
        (Edit(_SUBMIT, "t.id = latest and t.status in ('waiting', 'queued', 'retry_wait')", "t.id = latest and t.finished_at is null"),),
        "tests/tasks/test_unique.py::test_once_it_has_begun_there_is_another_one",
    ),
    Mutant(
        "a task that begins before what is merged into it", "tests", ("AssertionError: Claim(",),
        (Edit(_SUBMIT, "'retry_wait')\n                for no key update;", "'retry_wait');"),),
        "tests/tasks/test_unique.py::test_a_task_does_not_begin_before_what_is_merged_into_it_is_committed",
    ),
    Mutant(
        "a claim of what is paused", "tests", ("in refusal",),
        (_sql("claim", "        and not exists (select from paused p where p.task_type = '')\n", ""),),
        "tests/tasks/test_pauses.py::test_what_is_paused_nobody_claims",
    ),
    Mutant(
        "a poll that claims what is paused", "tests", ("] == []",),
        (_sql("claim_next", "    where not exists (select from paused p where p.task_type in ('', h.task_type))\n", ""),),
        "tests/tasks/test_pauses.py::test_what_is_paused_nobody_claims",
    ),
    Mutant(
        "an order carried out as often as it comes", "tests", ("'cancelled' != 'repeated'", "answer='cancelled'"),
        (_sql("mark_messages", "on conflict do nothing", "on conflict (consumer, message_id) do update set processed_at = now()"),),
        "tests/gateway/test_command_store.py::test_a_cancellation_is_carried_out_once",
    ),
    Mutant(
        "answers to wherever somebody names", "tests", ("assert True is False",),
        (Edit("grns/nats/delivery.py", "return _INBOX.fullmatch(reply) is not None", "return bool(reply)"),),
        "tests/nats/test_jetstream.py::test_an_inbox_is_told_from_any_other_subject",
    ),
    Mutant(
        "a rejected message sent again on any subject of its workspace", "tests", ("DID NOT RAISE",),
        (Edit("grns/dead_letters/message.py", "    if kind in _TASK_COMMANDS and wanted in (origin, shared):\n        return shared\n",
              "    if subjects.owner(wanted) == workspace:\n        return wanted\n"),),
        "tests/dead_letters/test_message.py::test_copy_on_another_subject_is_refused",
    ),
    Mutant(
        "own writes committed without the finish", "tests", ("[] == ['lease_expir",),
        (Edit("grns/worker/context.py", "                finished = await self._finish_in(connection, transaction)\n",
              "                await connection.execute('commit')\n                finished = await self._finish_in(connection, transaction)\n"),),
        "tests/faults/test_worker_killed.py::test_gone_before_the_commit",
    ),
    Mutant(
        "ends written in whatever workspace", "tests", ("'succeeded' != 'lost'",),
        (_sql("finish", "t.lease_id = w.lease_id and t.workspace = w.workspace\n        and", "t.lease_id = w.lease_id and"),),
        "tests/worker/test_fence.py::test_another_workspace_may_not_write",
    ),
    Mutant(
        "claim tokens taken unsigned", "tests", ("DID NOT RAISE",),
        (Edit("grns/model/claim_token.py", "        if key is None or key.id != self.key_id or not hmac.compare_digest(key.sign(self.body), self.mac):\n", "        if key is None:\n"),),
        "tests/model/test_claim_token.py::test_token_signed_with_another_key_is_refused",
    ),
    Mutant(
        "leases by the worker's clock", "tests", ("in _taken_back", "by the lease, not sooner or much later"),
        (_sql("claim", "statement_timestamp() + $9::double precision * interval '1 second'", "to_timestamp($9::double precision)"),
         Edit("grns/worker/claims.py", "self._types, self._maxima, self._claimant.lease_seconds,\n",
              "self._types, self._maxima, time.time() + self._claimant.lease_seconds,\n"),
         _sql("renew", "now() + $4::double precision * interval '1 second'", "to_timestamp($4::double precision)"),
         Edit("grns/worker/renewals.py", "for lease in leases], lease_seconds, ", "for lease in leases], time.time() + lease_seconds, "),
         Edit("grns/worker/renewals.py", "from collections.abc", "import time\nfrom collections.abc")),
        "tests/faults/test_clocks.py::test_everybody_has_another_time",
    ),
    Mutant(
        "what the broker lost is noticed, and not replayed", "tests", ("not within 20.0 s; last seen: False",),
        (Edit("grns/outbox/stream_loss.py", "            self._send_again(position, log.LostRange(since, since), high)\n", ""),),
        "tests/faults/test_tail_lost.py::test_what_stood_at_the_end_is_published_again",
    ),
    Mutant(
        "a cursor by plain sequence", "storm", ("missing event",),
        (_sql("read_log", "where e.seq >= m.lower_seq and e.seq < m.upper_seq", "where false"),),
        "stranger,network to Postgres",
    ),
    Mutant(
        "counted by one that leads no more", "tests", ("DID NOT RAISE",),
        (
            _sql("count_log", "l.epoch = $1", "l.epoch >= $1"),
            _sql("count_log", "c.moves = $2", "c.moves >= $2"),
        ),
        "tests/stats/test_counts.py::test_one_that_has_lost_the_lead_counts_nothing",
    ),
    Mutant(
        "counted by plain sequence", "tests", ("Right contains 1 more item",),
        (_sql("read_numbers", "where e.seq >= m.lower_seq and e.seq < m.upper_seq", "where false"),),
        "tests/stats/test_counts.py::test_what_commits_late_is_counted_when_it_is_visible",
    ),
    Mutant(
        "published before the broker has it", "storm", ("missing event",),
        (Edit("grns/outbox/wave_publisher.py", "            self._hand_over(reading, chunk)\n            return\n",
              "            self._end(reading, chunk)\n            return\n"),),
        "NATS: killed,NATS: frozen",
    ),
    Mutant(
        "a wave that does not wait for the one before it", "tests", ("two of one task unanswered",),
        (Edit("grns/outbox/wave_publisher.py", "        await wave.answered\n", ""),),
        "tests/outbox/test_wave_publisher.py::test_of_one_task_one_row_is_in_flight",
    ),
    Mutant(
        "a command acked before its claim", "tests", ("a delivery ends once",),
        (Edit("grns/worker/executor.py", "        failpoint.reach(\"worker.before_claim\")\n",
              "        for _, delivery in commands:\n            await delivery.ack()\n"),),
        "tests/worker/test_executor.py::test_a_command_is_acked_when_its_claim_has_committed",
    ),
    Mutant(
        "any command of a hinted task taken for its own", "tests", ("assert ('queued', 1) == ('succeeded', 2)",),
        (Edit("grns/worker/executor.py", "if command.message_id in self._done_commands:\n                del self._done_commands[command.message_id]\n",
              "if self._done_commands:\n                self._done_commands.popitem()\n"),),
        "tests/worker/test_executor.py::test_command_of_a_later_attempt_of_a_hinted_task_is_claimed",
    ),
    Mutant(
        "more handlers than slots", "tests", ("no more handlers than slots",),
        (Edit("grns/worker/prefetcher.py", "        elif self._slots.running < self._slots.size:\n            self._start(claim)", "        elif True:\n            self._start(claim)"),),
        "tests/worker/test_prefetcher.py::test_while_tasks_are_very_short_as_many_as_slots_are_claimed_ahead_and_wait",
    ),
    Mutant(
        "claimed ahead and never given back", "tests", ("assert [] == [",),
        (Edit("grns/worker/prefetcher.py", 'if self._release_claimed("no_slot", time.monotonic() - _LONGEST_WAIT_SECONDS):', "if False:"),),
        "tests/worker/test_prefetcher.py::test_tasks_that_are_claimed_ahead_and_wait_for_long_are_released",
    ),
    Mutant(
        "commands of two subjects in one message", "tests", ("assert 2 == 1",),
        (Edit("grns/outbox/wave_publisher.py", "(entry.workspace, entry.route)", "(entry.workspace, entry.workspace)"),),
        "tests/outbox/test_wave_publisher.py::test_messages_have_rows_of_one_subject_in_their_order",
    ),
    Mutant(
        "what a reading has cut off is published", "tests", ("versions in order",),
        (Edit("grns/outbox/relay.py", "self._waves.add(reading.entries[:taken])", "self._waves.add(reading.entries)"),),
        "tests/outbox/test_relay.py::test_what_lies_behind_late_rows_that_were_cut_off_waits_for_them",
    ),
    Mutant(
        "queued while its needs are open", "storm", ("needs",),
        (_sql("follow_log", "when o.met + s.met >= o.required then case", "when o.met + s.met + o.open + s.open >= o.required then case"),),
        "daemon",
    ),
    Mutant(
        "a need that is committed late and not looked at", "tests", ("['waiting'] == ['queued']",),
        (_sql("follow_log", "where n.kind in ('evt.task.waiting', 'evt.workflow.started')", "where false"),),
        "tests/workflows/test_needs.py::test_what_commits_after_its_need_has_ended_and_was_read_is_seen",
    ),
    Mutant(
        "a follower that forgets what was locked", "tests", ("['waiting'] == ['queued']",),
        (_sql("follow_log", "from movable m where m.id not in (select v.id from moved v)\n    union all", "from movable m where false\n    union all"),),
        "tests/workflows/test_needs.py::test_another_one_does_what_was_left_over",
    ),
    Mutant(
        "followed by one that leads no more", "tests", ("DID NOT RAISE",),
        (_sql("follow_log", "l.epoch = $1", "l.epoch >= $1"), _sql("follow_log", "c.moves = $2", "c.moves >= $2")),
        "tests/workflows/test_needs.py::test_one_that_leads_no_more_does_nothing",
    ),
    Mutant(
        "a redrive that brings nothing back", "tests", ("['cancelled', ",),
        (_sql("follow_log", "or (t.status = 'cancelled' and t.last_message_id = w.ended_by", "or (false and t.last_message_id = w.ended_by"),),
        "tests/workflows/test_needs.py::test_a_redrive_brings_back_what_was_cancelled_for_it",
    ),
    Mutant(
        "a workflow that is paused and goes on", "tests", ("['queued', ",),
        (_sql("follow_log", "when h.is_paused then 'waiting'", "when false then 'waiting'"),),
        "tests/workflows/test_control.py::test_paused_workflow_queues_nothing_until_it_is_resumed",
    ),
    Mutant(
        "an open workflow that is sealed before its tasks are counted", "tests", ("('succeeded', 0",),
        (_sql("follow_log", "where e.task_id = o.id and e.ended_as = 'added' offset 0", "where false offset 0"),),
        "tests/workflows/test_open_workflows.py::test_workflow_is_not_sealed_before_a_transaction_that_adds_to_it_has_ended",
    ),
    Mutant(
        "an open workflow that is sealed while tasks are added", "tests", ("assert not True",),
        (
            Edit(f"{_SCHEMA}/07_workflows.sql", "pg_advisory_xact_lock_shared(grns.workflow_lock(workflow_id))", "1"),
            Edit(f"{_SCHEMA}/07_workflows.sql", "k.workspace = workspace for share", "k.workspace = workspace"),
        ),
        "tests/workflows/test_open_workflows.py::test_workflow_is_not_sealed_before_a_transaction_that_adds_to_it_has_ended",
    ),
    Mutant(
        "a task that is redriven before its needs", "tests", ("'queued', 'queued'",),
        (Edit("grns/operations/sql/redrive_batch.sql", "exists (select from grns.waits n where n.task_id = t.id) as", "false as"),),
        "tests/workflows/test_control.py::test_redriven_workflow_runs_in_the_order_of_its_needs",
    ),
    Mutant(
        "an end that is followed again when it is read again", "tests", ("none is there twice",),
        (Edit(f"{_SCHEMA}/22_task_types.sql", "'follow-up:' || n.message_id || ':' || f.nth as key", "null::text as key"),),
        "tests/workflows/test_follow_ups.py::test_rows_that_are_read_again_submit_nothing",
    ),
    Mutant(
        "a follow-up that Postgres refuses, and that stops the follower", "tests", ("BlobMissing", "blob", "InvalidInputError"),
        (Edit(f"{_SCHEMA}/22_task_types.sql", "            for one in place .. upto loop\n", "            raise;\n            for one in place .. upto loop\n"),),
        "tests/workflows/test_follow_ups.py::test_what_postgres_refuses_holds_up_nothing",
    ),
    Mutant(
        "the next time counted from now", "tests", ("not enough values to unpack",),
        (Edit("grns/schedules/decisions.py", "one.rhythm, one.next_at, self.now, catch_up", "one.rhythm, self.now, self.now, catch_up"),),
        "tests/schedules/test_scheduler.py::test_what_was_missed_is_one_row",
    ),
    Mutant(
        "a limit that counts only what runs", "tests", ("== ['gr-",),
        (Edit("grns/limits/book.py", 'held = (after in ("queued", "running")) - (before in ("queued", "running"))',
              'held = (after == "running") - (before == "running")'),),
        "tests/limits/test_book.py::test_as_many_are_admitted_as_may_run_at_once",
    ),
    Mutant(
        "a row of the log done though its command is not published", "tests", ("assert not True", "assert not any"),
        (Edit("grns/outbox/wave_publisher.py", "if not reading.left and not reading.handed_over[seq]:", "if not reading.left:"),),
        "tests/outbox/test_wave_publisher.py::test_a_row_is_done_once_the_broker_has_its_event_and_its_command",
    ),
    Mutant(
        "an event that is lost while its task is locked", "tests", ("assert 0 == 1",),
        (Edit(f"{_SCHEMA}/18_steps.sql", " and (w.task_id || ' ' || w.step) <> all (kept)", ""),
         Edit(f"{_SCHEMA}/18_steps.sql", "set behind = found_one.seq - 1", "set behind = found_one.seq")),
        "tests/worker/test_events.py::test_a_task_that_is_locked_gets_it_later",
    ),
    Mutant(
        "an event that happened before the wait, and is missed", "tests", ("assert 0 == 1",),
        (Edit("grns/worker/sql/await_event.sql", "select min(e.seq)", "select max(e.seq)"),),
        "tests/worker/test_events.py::test_what_happened_before_the_wait_counts_from_the_creation_on",
    ),
    Mutant(
        "output of a worker that has lost its task", "tests", ("assert not True",),
        (Edit("grns/model/output_view.py", "(is_live and chunk.attempt < self.attempt)", "False"),),
        "tests/model/test_output.py::test_a_worker_that_has_lost_its_task_is_not_heard",
    ),
    Mutant(
        "a limit whose rate costs nothing", "tests", ("assert",),
        (Edit("grns/limits/book.py", "self._spend(line, 1)\n            self._served", "self._served"),),
        "tests/limits/test_book.py::test_a_rate_bounds_how_many_begin",
    ),
    Mutant(
        "a limit that gives the room of a reaped task away", "tests", ("assert (not True or",),
        (Edit("grns/limits/admitter.py", 'None if row["id"] in self._left else', 'None if row["id"] in self._left or row["repeats"] else'),),
        "tests/limits/test_random_traffic.py",
    ),
    Mutant(
        "limits that a leader of before still keeps", "tests", ("DID NOT RAISE",),
        (_sql("follow_limits", "l.epoch = $1", "l.epoch >= $1"), _sql("admit_tasks", "l.epoch = $1", "l.epoch >= $1")),
        "tests/limits/test_admitter.py::test_leader_that_loses_the_lead_before_its_write_admits_nothing",
    ),
    Mutant(
        "a retry under limits that a worker claims", "tests", ("AssertionError: Claim(",),
        (_sql("explain_unclaimed", "(t.status = 'retry_wait' and t.limits is not null)", "false"),
         _sql("claim", " and (t.status = 'queued' or t.limits is null)", "")),
        "tests/limits/test_admitter.py::test_retry_that_is_due_waits_to_be_admitted_again",
    ),
    Mutant(
        "answers of a batch that slip by one", "storm", ("wrong outcome", "stale write"),
        (Edit("grns/worker/finishes.py", "[finish.outcome.result for finish in finishes],",
              "[finish.outcome.result for finish in [*finishes[1:], finishes[0]]],"),),
        "worker",
    ),
    Mutant(
        "an unknown outcome told as nothing done", "points", ("invented",),
        (Edit("grns/postgres/errors.py", "raise OutcomeUnknownError(f\"no answer", "raise UnavailableError(f\"no answer"),),
        "submit_tasks.answered=drop",
    ),
    Mutant(
        "mail of an attempt that has lost its task", "tests", ("assert [] == ['refused']",),
        (Edit(f"{_SCHEMA}/21_agents.sql", "t.id = task_id and t.attempt = attempt and t.lease_id = lease_id", "t.id = task_id"),),
        "tests/tasks/test_mail.py",
    ),
    Mutant(
        "mail that is acknowledged unseen", "tests", ("assert",),
        (_sql("ack_mail", "m.id = any($3::uuid[])", "(m.id = any($3::uuid[]) or true)"),),
        "tests/tasks/test_mail.py",
    ),
    Mutant(
        "mail that is handed out once", "tests", ("assert",),
        (_sql("poll_mail", "m.acked_at is null and m.expires_at", "m.delivered_at is null and m.expires_at"),),
        "tests/tasks/test_mail.py::test_a_message_comes_again_until_it_is_acknowledged",
    ),
    Mutant(
        "a task for one agent that any worker claims", "tests", ("assert",),
        (_sql("claim", " and t.route = ''", ""),),
        "tests/tasks/test_routing.py::test_a_task_for_an_agent_is_run_by_no_one_else",
    ),
    Mutant(
        "a task that an agent without the capability claims", "tests", ("assert",),
        (_sql("claim_next", "where grns.capabilities_of(s.route) <@ g.capabilities", ""),),
        "tests/tasks/test_routing.py",
    ),
    Mutant(
        "an agent over HTTP that claims although it was told to end", "tests", ("assert",),
        (Edit(f"{_SCHEMA}/21_agents.sql", "when grns.life_order(agent, life) is null then", "when true then"),),
        "tests/tasks/test_routing.py",
    ),
    Mutant(
        "an agent that hangs and is saved by its next life", "tests", ("not enough values to unpack",),
        (_sql("end_ordered", "from grns.earlier_lives e where e.ordered = 'stop'", "from grns.earlier_lives e where false"),),
        "tests/tasks/test_agents.py::test_a_new_life_does_not_save_one_that_was_told_to_stop",
    ),
    Mutant(
        "results of joined tasks among those of needed ones", "tests", ("assert [{}, {",),
        (_sql("read_results", " and e.name is not null", ""),),
        "tests/workflows/test_fan_out.py::test_what_is_joined_is_no_result_of_a_task_that_is_needed",
    ),
)  # fmt: skip
