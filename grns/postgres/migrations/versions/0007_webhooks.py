"""Webhooks."""

from grns.postgres.migrations import shipped

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0007_webhooks")
