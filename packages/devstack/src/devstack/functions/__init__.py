"""A local Functions host: runs an unchanged function app, and fails where and how the real host fails.

It never makes a function app look more reliable than it is: a batch that the real host would lose is lost
here too.
"""
