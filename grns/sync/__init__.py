"""The synchronous client: for Django, Flask and scripts.

```python
from grns import sync

client = sync.Client()
handle = client.submit(fetch_page, Page(url="https://example.org"))
print(handle.result(timeout=30))
```
"""

from grns.sync.client import SyncClient as Client
from grns.sync.handle import SyncTaskHandle as TaskHandle
from grns.sync.workflow import SyncWorkflow as Workflow
from grns.sync.workflow import SyncWorkflowHandle as WorkflowHandle

__all__ = ["Client", "TaskHandle", "Workflow", "WorkflowHandle"]
