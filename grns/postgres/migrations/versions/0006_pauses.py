"""Pauses of pools."""

from grns.postgres.migrations import shipped

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0006_pauses")
