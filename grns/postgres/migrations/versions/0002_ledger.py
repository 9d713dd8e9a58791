"""The ledger: what the log says, counted."""

from grns.postgres.migrations import shipped

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0002_ledger")
