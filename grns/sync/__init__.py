"""The synchronous client: for Django, Flask and scripts.

```python
from grns import sync

client = sync.Client()
handle = client.submit(fetch_page, Page(url="https://example.org"))
print(handle.result(timeout=30))
```
"""

from grns.sync.client import SyncClient as Client
from grns.sync.client import SyncTaskHandle as TaskHandle

__all__ = ["Client", "TaskHandle"]
