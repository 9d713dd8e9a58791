"""Workspaces, API keys, and what confines a tenant to its workspace."""

from grns.postgres.migrations import shipped

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0003_access")
