"""The receiver's kit: `kit/angarium_receiver`, without a sender."""
