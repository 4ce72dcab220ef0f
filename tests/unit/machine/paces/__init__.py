"""The rules that learn a pace, observation by observation."""
