"""The receiver's kit, in a loop with the sender, over real HTTP."""
