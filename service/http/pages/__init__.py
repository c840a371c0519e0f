"""The pages for people: runs, incidents, what can be said of them. Rendered on the server; they work without their script."""
