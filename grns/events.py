"""Payloads of events: `Event.payload` is one of these, by its kind.

```python
async def on_dead(event: grns.Event[grns.events.TaskDead], connection) -> None:
    print(event.payload.task_id, event.payload.error_class)
```
"""

from grns.model.audit_events import (
    BudgetChanged,
    BudgetExceeded,
    IssueChanged,
    OperationChanged,
    OperationCreated,
    OperationEnded,
    PoolPaused,
    PoolQuotaChanged,
    PoolResumed,
    TaskChanged,
    TaskDiscarded,
    TaskSignaled,
)
from grns.model.events import (
    AgentEvent,
    TaskCancelled,
    TaskClaimed,
    TaskCompleted,
    TaskDead,
    TaskFailed,
    TaskLeaseExpired,
    TaskQueued,
    TaskReleased,
    TaskRetryScheduled,
    TaskSnoozed,
    TaskWaiting,
)

__all__ = [
    "AgentEvent",
    "BudgetChanged",
    "BudgetExceeded",
    "IssueChanged",
    "OperationChanged",
    "OperationCreated",
    "OperationEnded",
    "PoolPaused",
    "PoolQuotaChanged",
    "PoolResumed",
    "TaskCancelled",
    "TaskChanged",
    "TaskClaimed",
    "TaskCompleted",
    "TaskDead",
    "TaskDiscarded",
    "TaskFailed",
    "TaskLeaseExpired",
    "TaskQueued",
    "TaskReleased",
    "TaskRetryScheduled",
    "TaskSignaled",
    "TaskSnoozed",
    "TaskWaiting",
]
