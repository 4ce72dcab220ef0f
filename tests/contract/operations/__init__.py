"""Operations over a connection."""
