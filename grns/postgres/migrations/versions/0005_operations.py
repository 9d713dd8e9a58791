"""Operations: redriving, discarding and cancelling in bulk."""

from grns.postgres.migrations import shipped

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the shipped SQL."""
    shipped.run("0005_operations")
