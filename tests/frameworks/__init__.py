"""Sample logs of every framework, read as the collector would get them."""
