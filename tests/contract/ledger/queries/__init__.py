"""Records of a ledger as its users see them."""
