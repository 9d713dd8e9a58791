"""`make docs`: write the reference anew, build the site, and see that it takes nothing from elsewhere."""

from __future__ import annotations

import sys

from tests.site import build, reference
from tests.support.harness import ROOT

for path in reference.write():
    print(f"written anew: {path.relative_to(ROOT)}")  # noqa: T201
build.build()
if found := build.foreign():
    sys.exit("the site takes something from other hosts:\n" + "\n".join(found))
pages = len(list(build.SITE.rglob("*.html")))
print(f"{pages} pages in {build.SITE.relative_to(ROOT)}/: open {build.SITE / 'index.html'}")  # noqa: T201
