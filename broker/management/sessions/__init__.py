"""Sessions of the page: tokens in cookies, by which a browser is known after its login."""
