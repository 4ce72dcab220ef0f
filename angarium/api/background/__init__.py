"""Work of a process outside its requests, such as one reading of the journal for all streams."""
