"""Lists: an index of what has ended, and saved filters."""

from grns.postgres.migrations import shipped

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0004_lists")
