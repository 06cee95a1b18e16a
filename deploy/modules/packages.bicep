// The code of the function apps. Each reads its own, and none can write it: code that was broken into cannot change
// itself. Who deploys uploads it (tools/publish.py), from anywhere, with a sign-in: no key opens the account.
param name string
param location string
param tags object
param sku string
param apiPrincipalId string
param workersPrincipalId string
param publisherPrincipalId string

var storageBlobDataReader = '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
var storageBlobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    supportsHttpsTrafficOnly: true
    minimumTlsVersion: 'TLS1_2'
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource api 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: 'api'
}

resource workers 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: 'workers'
}

resource apiReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(api.id, apiPrincipalId, storageBlobDataReader)
  scope: api
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataReader)
    principalId: apiPrincipalId
    principalType: 'ServicePrincipal'
  }
}

resource workersRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workers.id, workersPrincipalId, storageBlobDataReader)
  scope: workers
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataReader)
    principalId: workersPrincipalId
    principalType: 'ServicePrincipal'
  }
}

resource publisherWrites 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, publisherPrincipalId, storageBlobDataContributor)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataContributor)
    principalId: publisherPrincipalId
  }
}

output name string = account.name
output apiUrl string = '${account.properties.primaryEndpoints.blob}${api.name}'
output workersUrl string = '${account.properties.primaryEndpoints.blob}${workers.name}'
