"""What a study leaves behind: the artefact, the profile of a machine in it, and the pipeline that is made of them.

Nothing here measures or searches, and nothing that an artefact says is ever executed; code that it names is imported
when a loader or trainer is built, not before.
"""
