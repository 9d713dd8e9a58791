"""What a security review, an independent storm and a first run found, and the test that each of it has now.

A finding's id stands in the docstring of its tests: H, M and L are the review's (high, medium, low), R the
storm's about the broker, "Reliability" and "Newcomer" what the storm and the first run noted besides.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FINDINGS = {
    "H1": "model/test_lease_id.py::test_lease_id_cannot_be_predicted_from_published_event_ids",
    "H2": "process/test_dev.py::test_dev_opens_to_its_user_and_to_nobody_else",
    "H3": "process/test_api.py::test_it_is_never_open_to_everybody",
    "M1": "api/test_triage.py::test_a_message_is_mended_and_sent_again",
    "M2": (
        "dead_letters/test_janitor.py"
        "::test_janitor_files_unserved_messages_under_the_workspace_of_their_subject"
    ),
    "M3": ("api/test_access.py::test_every_operation_with_every_key_and_every_way_to_name_another_workspace"),
    "M4": "repository/test_compose.py::test_nothing_that_reads_files_runs_by_default",
    "M5": "access/test_limits.py::test_places_alone_a_workspace_gets_half_of_them",
    "M6": ("access/test_limits.py::test_register_worker_beyond_the_most_replaces_the_one_silent_for_longest"),
    "M7": "dead_letters/test_janitor.py::test_janitor_deletes_closed_messages_after_their_retention",
    "M8": "access/test_limits.py::test_read_attempts_reads_as_many_rows_however_much_progress_was_told",
    "M9": "api/test_server.py::test_connection_beyond_the_most_closes_the_one_idle_for_longest",
    "M10": "process/test_nats_users.py::test_components_work_as_their_own_users",
    "L1": "postgres/test_outage.py::test_log_shows_no_control_character_of_a_hostile_text",
    "L2": "access/test_limits.py::test_event_stream_of_a_key_that_has_ended_ends",
    "L3": "web/test_access.py::test_session_made_with_the_secret_and_the_id_of_a_key_is_refused",
    "L4": "operations/test_model.py::test_request_of_a_rate_below_one_a_day_says_the_least",
    "L5": "cli/test_cli.py::test_filters_are_saved",
    "L6": "api/test_task.py::test_create_tasks_with_bad_items_creates_the_others",
    "L7": "postgres/test_outage.py::test_transaction_cancelled_at_any_moment_leaves_no_backend_in_it",
    "L8": ("tasks/test_search_tenants.py::test_cursor_of_a_tenant_has_no_exact_time_of_another_tenants_task"),
    "L9": "postgres/test_outage.py::test_redaction_takes_time_in_proportion_to_the_text",
    "L10": "api/test_server.py::test_request_with_two_lengths_is_refused_and_the_connection_closed",
    "L11": "settings/test_settings.py::test_file_here_that_others_may_have_written_is_not_read",
    "L12": "tasks/test_submit_sql.py::test_submit_of_a_number_that_a_float_does_not_keep_is_refused",
    "L13": "webhooks/test_http.py::test_host_that_leads_nowhere_has_the_error_of_one_that_leads_inside",
    "L14": "repository/test_compose.py::test_observers_reach_neither_postgres_nor_nats",
    "L15": "api/test_agent.py::test_key_of_another_pool_neither_claims_nor_ends",
    "L16": "access/test_keys.py::test_each_change_is_told_of_with_who_made_it",
    "L17": "web/test_access.py::test_form_of_a_stranger_is_read_no_further_than_a_key_is_long",
    "L18": "worker/test_ready_made_pools.py::test_post_of_a_task_refuses_a_compressed_answer",
    "R1": "client/test_subscription.py::test_event_of_a_kind_not_asked_for_is_not_handled",
    "R2": "nats/test_power_cut.py::test_durable_with_a_damaged_state_file_is_kept_in_memory",
    "R4": "nats/test_power_cut.py::test_broker_with_too_little_storage_is_named",
    "Newcomer 1": "postgres/test_times.py::test_finish_in_an_open_transaction_writes_the_time_of_the_finish",
    "Newcomer 8": "worker/test_results.py::test_finish_with_a_small_result_puts_it_into_the_event",
    "Newcomer 10": (
        "cli/test_operations.py::test_task_redrive_of_ids_with_a_patch_runs_them_with_the_new_payload"
    ),
    "Newcomer 11": ("cli/test_cli.py::test_submit_wait_without_a_worker_for_the_type_says_so_while_it_waits"),
    "Newcomer 12": (
        "cli/test_cli.py::test_task_list_of_a_task_that_was_redriven_shows_the_attempts_that_count"
    ),
    "Newcomer 15": "web/test_pages.py::test_pages_of_a_failed_task_and_its_issue_show_the_traceback",
    "Newcomer 2": "repository/test_findings.py::test_extra_dev_brings_the_api",
    "Newcomer 14": "maintenance/test_reaper.py::test_reaper_that_holds_logs_it_once_as_info",
    "Reliability: starts": (
        "faults/test_postgres_gone.py::test_process_that_starts_while_postgres_is_away_waits_for_it"
    ),
    "Reliability: outages": (
        "postgres/test_outage.py::test_handlers_transaction_in_an_outage_does_not_count_as_an_attempt"
    ),
    "Reliability: noise": "postgres/test_outage.py::test_janitor_in_an_outage_writes_one_line_a_round",
}
_REVIEW = [
    *(f"H{n}" for n in range(1, 4)),
    *(f"M{n}" for n in range(1, 11)),
    *(f"L{n}" for n in range(1, 19)),
]


def test_every_finding_of_the_review_has_a_test() -> None:
    assert set(_REVIEW) <= set(FINDINGS)


@pytest.mark.parametrize("finding", FINDINGS)
def test_test_of_a_finding_names_it(finding: str) -> None:
    file, _, name = FINDINGS[finding].partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    (found,) = [one for one in functions if one.name == name]
    first = (ast.get_docstring(found) or "").partition("\n")[0].lower()
    assert finding.partition(":")[0].lower() in first[:60]


def test_extra_dev_brings_the_api() -> None:
    """Newcomer 2: `grns dev` said that the API needs uvicorn, and the README promised a dashboard."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "grns[api]" in project["optional-dependencies"]["dev"]
