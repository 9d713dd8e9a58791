"""The initial schema."""

from grns.postgres.migrations import shipped

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0001_initial")
