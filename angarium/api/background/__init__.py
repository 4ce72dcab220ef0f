"""Work of a process that goes on outside its requests, such as one reading of the journal for all streams."""
